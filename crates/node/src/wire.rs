//! The messages, generated from `proto/undertone.proto`.

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::missing_errors_doc,
    reason = "generated code"
)]
mod made {
    tonic::include_proto!("undertone.v1");
}

use tonic::codegen::Bytes;
use undertone_party::frame::HEADER_LEN;
use undertone_party::{PartyId, SessionId};

pub(crate) use made::from_client::What as ClientSays;
pub(crate) use made::from_server::What as ServerSays;
pub(crate) use made::undertone_client::UndertoneClient;
pub(crate) use made::undertone_server::{Undertone, UndertoneServer};
pub(crate) use made::{
    Answer, Challenge, FromClient, FromServer, Gone, Goodbye, Hello, Offer, Progress, Ready,
    Refusal, Resume, Resumed, Returned, Start, Taken,
};

/// The version of these messages, which the challenge states.
pub(crate) const VERSION: u32 = 1;

/// The label under which TLS exports a secret for the hello.
pub(crate) const EXPORT_LABEL: &[u8] = b"EXPORTER-undertone-v1-hello";

/// The context of a hello's signature.
pub(crate) const HELLO: &str = "connection";

/// Length of the longest message in bytes: the longest frame and what surrounds it.
pub(crate) fn max_message() -> usize {
    crate::drive::limits().max_payload + HEADER_LEN + 64
}

/// What a client signs: the secret of its connection, and its name.
pub(crate) fn hello_body(exported: &[u8; 32], name: &str) -> Vec<u8> {
    let mut body = exported.to_vec();
    body.extend_from_slice(name.as_bytes());
    body
}

/// Reads a session id or a nonce, which has exactly 32 bytes.
pub(crate) fn session(bytes: &Bytes) -> Option<SessionId> {
    Some(SessionId(bytes[..].try_into().ok()?))
}

pub(crate) fn from_client(what: ClientSays) -> FromClient {
    FromClient { what: Some(what) }
}

pub(crate) fn from_server(what: ServerSays) -> FromServer {
    FromServer { what: Some(what) }
}

pub(crate) fn taken(peer: PartyId, next: u32) -> Taken {
    Taken {
        peer: peer.to_wire(),
        next,
    }
}
