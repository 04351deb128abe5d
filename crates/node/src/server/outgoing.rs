//! What goes out over a client's connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_stream::Stream;

use crate::wire::{self, FromServer, Notice, Refusal, ServerSays};

/// Sends to a client over one connection.
#[derive(Clone)]
pub(super) struct Sender {
    /// Tells connections apart.
    pub(super) connection: u64,
    queue: UnboundedSender<ServerSays>,
}

impl Sender {
    /// The two ends of a connection's queue.
    pub(super) fn new(connection: u64) -> (Self, Outgoing) {
        let (queue, outgoing) = tokio::sync::mpsc::unbounded_channel();
        (Self { connection, queue }, Outgoing(outgoing))
    }

    /// Queues a message. It is lost when the connection has ended.
    pub(super) fn say(&self, what: ServerSays) {
        let _ = self.queue.send(what);
    }

    /// Sends the client a text for its log.
    pub(super) fn notice(&self, text: &str) {
        self.say(ServerSays::Notice(Notice {
            text: text.to_owned(),
        }));
    }

    /// Refuses the client for good.
    pub(super) fn refuse(&self, why: &str) {
        self.say(ServerSays::Refusal(Refusal {
            why: why.to_owned(),
            later: false,
        }));
    }

    /// Refuses the client, which may try again later.
    pub(super) fn refuse_for_now(&self, why: &str) {
        self.say(ServerSays::Refusal(Refusal {
            why: why.to_owned(),
            later: true,
        }));
    }
}

/// The messages that go out over one connection.
pub(crate) struct Outgoing(UnboundedReceiver<ServerSays>);

impl Stream for Outgoing {
    type Item = Result<FromServer, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let said = self.0.poll_recv(cx);
        said.map(|said| said.map(|what| Ok(wire::from_server(what))))
    }
}
