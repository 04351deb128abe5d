//! The messages, made of `proto/undertone.proto`.

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::missing_errors_doc,
    reason = "made by a generator"
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

/// What these messages are, for the first of them.
pub(crate) const VERSION: u32 = 1;

/// What TLS exports for the hello.
pub(crate) const EXPORT_LABEL: &[u8] = b"EXPORTER-undertone-v1-hello";

/// What a hello's signature is for.
pub(crate) const HELLO: &str = "connection";

/// Longest message: the longest frame, and what is around it.
pub(crate) fn max_message() -> usize {
    crate::drive::limits().max_payload + HEADER_LEN + 64
}

/// What a client signs: the connection, and who it says it is.
pub(crate) fn hello_body(exported: &[u8; 32], name: &str) -> Vec<u8> {
    let mut body = exported.to_vec();
    body.extend_from_slice(name.as_bytes());
    body
}

/// Exactly 32 bytes.
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
