//! Any bytes as roster and job files, and as what comes by the links of a networked party.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone::node::flow::Links;
use undertone::node::{Job, Roster};
use undertone::party::{Limits, PartyId, SessionId};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(roster) = Roster::parse(text) {
            let again = Roster::parse(&roster.to_toml());
            assert_eq!(again.as_ref().map(Roster::entries), Ok(roster.entries()));
        }
        let _ = Job::parse(text);
    }
    let me = PartyId::SERVER;
    let mut links = Links::new(me, SessionId([0; 32]), 1000, Limits::default());
    // The first byte of a chunk says what happens, the second on which link, the third how long the frame is.
    let mut rest = bytes;
    while let [what, link, len, tail @ ..] = rest {
        let (frame, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let who = PartyId::client(usize::from(*link) % 3);
        let next = u32::from(*len);
        match what % 8 {
            0 => drop(links.arrived(who, &frame.to_vec().into())),
            1 => drop(links.taken_by(who, next)),
            2 => drop(links.returned(who, next)),
            3 => links.send(who, frame.to_vec()),
            4 => links.resend(),
            5 => links.gone(who),
            6 => links.tell(),
            _ => drop(links.feed(|_, frame| (next % 2 == 0).then_some(frame))),
        }
        while links.next_out().is_some() {}
    }
});
