//! The messages of `proto/undertone.proto`. Their code is generated and committed, so that no build
//! needs the generator. `UPDATE=1 cargo test -p undertone-node generated` writes it again.
#![cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "for tests"))]

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::missing_errors_doc,
    reason = "generated code"
)]
#[rustfmt::skip]
mod generated;

use tonic::codegen::Bytes;
use undertone_job::is_hidden;
use undertone_party::frame::HEADER_LEN;
use undertone_party::{PartyId, SessionId};

pub use generated::from_client::What as ClientSays;
pub use generated::from_server::What as ServerSays;
pub use generated::undertone_client::UndertoneClient;
pub use generated::undertone_server::{Undertone, UndertoneServer};
pub use generated::{
    Answer, Challenge, Deadline, FromClient, FromServer, Gone, Goodbye, Hello, Notice, Offer, Over,
    Progress, Ready, Refusal, Resume, Resumed, Returned, Start, Taken, Through,
};

/// The version of these messages, which the challenge states.
pub const VERSION: u32 = 2;

/// The label under which TLS exports a secret for the hello.
pub const EXPORT_LABEL: &[u8] = b"EXPORTER-undertone-v1-hello";

/// The context of a hello's signature.
pub const HELLO: &str = "connection";

/// Length of the longest message in bytes: the longest frame and its encoding.
pub fn max_message() -> usize {
    crate::drive::limits().max_payload + HEADER_LEN + 64
}

/// The body of a hello's signature: the secret of the connection, then the client's name.
pub fn hello_body(exported: &[u8; 32], name: &str) -> Vec<u8> {
    let mut body = exported.to_vec();
    body.extend_from_slice(name.as_bytes());
    body
}

/// Longest text of a peer that is kept, logged or passed on, in characters.
const MAX_TEXT: usize = 400;

/// A peer's text, cleaned for logs and pages (NET-30): on one line, without characters that control
/// terminals or the direction of writing, and at most 400 characters long.
pub fn plain(text: &str) -> String {
    let letters = text.chars().take(MAX_TEXT);
    letters
        .map(|c| if is_hidden(c) { ' ' } else { c })
        .collect()
}

/// Reads a session id or a nonce, which has exactly 32 bytes.
pub fn session(bytes: &Bytes) -> Option<SessionId> {
    Some(SessionId(bytes[..].try_into().ok()?))
}

/// A client's message.
pub fn from_client(what: ClientSays) -> FromClient {
    FromClient { what: Some(what) }
}

/// A server's message.
pub fn from_server(what: ServerSays) -> FromServer {
    FromServer { what: Some(what) }
}

/// The frames of `peer` below number `next` have been taken.
pub fn taken(peer: PartyId, next: u32) -> Taken {
    Taken {
        peer: peer.to_wire(),
        next,
    }
}

#[cfg(test)]
mod tests {
    /// The committed code equals the generator's output.
    #[test]
    fn generated_code_is_that_of_the_description() {
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let proto = here.join("proto");
        let description = protox::compile(["undertone.proto"], [proto]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        tonic_prost_build::configure()
            .bytes(".")
            .out_dir(folder.path())
            .compile_fds(description)
            .unwrap();
        let made = std::fs::read_to_string(folder.path().join("undertone.v1.rs")).unwrap();
        let committed = here.join("src/wire/generated.rs");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&committed, &made).unwrap();
        }
        let held = std::fs::read_to_string(committed).unwrap();
        assert!(
            held == made,
            "UPDATE=1 cargo test -p undertone-node generated"
        );
    }
}
