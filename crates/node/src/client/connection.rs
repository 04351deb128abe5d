//! A connection to the server: sends and receives messages.

use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::wire::{
    self, ClientSays, FromClient, FromServer, ServerSays, UndertoneClient, max_message,
};

/// Most messages of the server that wait to be handled. The client then reads no more.
const HEARD: usize = 8;

/// The two directions of a connection.
pub(super) struct Connection {
    pub(super) sender: UnboundedSender<FromClient>,
    heard: Receiver<Result<ServerSays, String>>,
    listener: JoinHandle<()>,
    /// The secret that TLS exports for the hello.
    pub(super) exported: [u8; 32],
}

impl Connection {
    /// Opens a stream of messages within `time`. The error says why it cannot.
    pub(super) async fn open(
        channel: Channel,
        exported: [u8; 32],
        time: Duration,
    ) -> Result<Self, String> {
        let (sender, queue) = tokio::sync::mpsc::unbounded_channel();
        let mut client = UndertoneClient::new(channel)
            .max_decoding_message_size(max_message())
            .max_encoding_message_size(max_message());
        let opening = client.connect(UnboundedReceiverStream::new(queue));
        let stream = match tokio::time::timeout(time, opening).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Err(status.message().to_owned()),
            Err(_) => return Err(format!("no answer within {} s", time.as_secs_f64())),
        };
        let (tell, heard) = tokio::sync::mpsc::channel(HEARD);
        Ok(Self {
            sender,
            heard,
            listener: tokio::spawn(listen(stream, tell)),
            exported,
        })
    }

    /// Queues a message. It is lost when the connection has ended.
    pub(super) fn say(&self, what: ClientSays) {
        let _ = self.sender.send(wire::from_client(what));
    }

    /// Waits for the server's next message. The error says why the connection is lost.
    pub(super) async fn hear(&mut self) -> Result<ServerSays, String> {
        let heard = self.heard.recv().await;
        heard.unwrap_or_else(|| Err("the connection ended".into()))
    }

    /// Waits until the server ends the connection, at most `time`.
    pub(super) async fn ended(&mut self, time: Duration) {
        let ended = async { while self.hear().await.is_ok() {} };
        let _ = tokio::time::timeout(time, ended).await;
    }

    /// Ends the connection from this side.
    pub(super) fn close(self) {
        self.listener.abort();
    }
}

async fn listen(mut stream: Streaming<FromServer>, tell: Sender<Result<ServerSays, String>>) {
    loop {
        let said = match stream.message().await {
            Ok(Some(FromServer { what: Some(what) })) => Ok(what),
            // A kind of message that only a newer version has.
            Ok(Some(FromServer { what: None })) => continue,
            Ok(None) => return,
            Err(status) => Err(status.message().to_owned()),
        };
        let over = said.is_err();
        if tell.send(said).await.is_err() || over {
            return;
        }
    }
}
