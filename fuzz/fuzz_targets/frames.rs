//! Any bytes as frames, to a server that waits for its clients.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone::mpc::kdf::Seed;
use undertone::party::{Endpoint, Limits, PartyId, Poll, Push, SessionId};
use undertone::xclp::{Params, Server};

fuzz_target!(|bytes: &[u8]| {
    let session = SessionId([0; 32]);
    let ids: Vec<PartyId> = (0..3).map(PartyId::client).collect();
    let seed = Seed::from_bytes([1; 32]);
    let Ok(server) = Server::new(session, Params::default(), ids.clone(), seed) else {
        return;
    };
    let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
    // The first byte of a chunk says whose link it came by, the second how long it is.
    let mut rest = bytes;
    while let [link, len, tail @ ..] = rest {
        let (frame, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let link = ids[usize::from(*link) % ids.len()];
        if let Ok(Push::Full(_)) = server.push(link, frame.to_vec()) {
            return;
        }
        while let Ok(Poll::Busy | Poll::Send(..)) = server.poll() {}
    }
});
