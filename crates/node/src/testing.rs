//! For tests of peers that break the rules: the messages of the network, and a party's driver. Only
//! with the feature `testing`. It may change at any time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tonic::codegen::Bytes;
use tonic::transport::Channel;
use undertone_party::{Aborted, Endpoint, Party, PartyId, Phase};

use crate::client::{self, Config, JoinError};
use crate::drive::{self, Line, Standing};
use crate::flow::{Item, Links, Violation};
use crate::server::{self, ServeError};
use crate::tls::{self, Certificate};

pub use crate::wire::*;

/// Connects to the server of a client's configuration. Returns the channel and the secret that TLS
/// exports, which the hello's signature covers.
///
/// # Errors
/// A [`JoinError`].
pub async fn reach(config: &Config) -> Result<(Channel, [u8; 32]), JoinError> {
    let wrong = |error: tls::TlsError| JoinError::Config(error.to_string());
    let tls = tls::client(&config.authorities, config.certificate.as_ref()).map_err(wrong)?;
    client::reach(config, tls, Arc::default()).await
}

/// Serves `service` to all callers, on a free port of this machine and over TLS with the server's
/// `certificate`. Returns the address. The service runs as long as the runtime.
///
/// # Errors
/// A [`ServeError`].
pub async fn serve(
    certificate: &Certificate,
    service: impl Undertone,
) -> Result<SocketAddr, ServeError> {
    server::serve(certificate, service).await
}

/// Something that a party's driver must handle.
#[derive(Debug)]
pub enum Event {
    /// A frame has arrived from a peer.
    Frame(PartyId, Bytes),
    /// A peer has taken this party's frames below a number.
    Taken(PartyId, u32),
}

/// Where a driven party sends its frames, and reports its phases.
pub trait Out {
    /// The party sends an item.
    fn put(&mut self, to: PartyId, item: Item);
    /// The party is in a phase.
    fn phase(&mut self, phase: Phase);
}

struct Tap<'a, O>(&'a mut O);

impl<O: Out> Line for Tap<'_, O> {
    fn put(&mut self, to: PartyId, item: Item) {
        self.0.put(to, item);
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        tracing::error!(%from, %why, "refused a frame or an acknowledgement");
    }

    fn stands(&mut self, standing: Standing, _: Vec<(PartyId, u32)>) {
        self.0.phase(standing.phase);
    }
}

/// Drives a party until it has ended and its peers have taken what it sent.
///
/// # Errors
/// Why the party has no result.
pub fn drive<P: Party>(
    endpoint: Endpoint<P>,
    links: Links,
    linger: Duration,
    events: Receiver<Event>,
    out: &mut impl Out,
) -> Result<P::Output, Aborted> {
    let (tell, inbox) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for event in events {
            let event = match event {
                Event::Frame(from, frame) => drive::Event::Frame { from, frame },
                Event::Taken(by, next) => drive::Event::Taken { by, next },
            };
            if tell.send(event).is_err() {
                return;
            }
        }
    });
    drive::drive(endpoint, links, linger, &inbox, &mut Tap(out)).result
}
