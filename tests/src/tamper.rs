//! Networks that alter messages, and assertions about the aborts that follow.

use undertone::kdf::Seed;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId, Phase, SessionId};
use undertone::setup::seal::{Broadcast, Channel, KeyPair, SealError};

/// Replaces the payload of `frame`.
pub fn set_payload(frame: &mut Vec<u8>, payload: &[u8]) {
    frame.truncate(HEADER_LEN);
    frame[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    frame.extend_from_slice(payload);
}

/// A network in which `change` alters the payload of frame `nth` from `from` to `to`.
pub fn tampering<'a>(
    (from, to, nth): (PartyId, PartyId, usize),
    change: impl Fn(&mut Vec<u8>) + 'a,
) -> Network<'a> {
    let mut seen = 0;
    Network::new().intercept(move |f, t, frame| {
        if (f, t) != (from, to) {
            return;
        }
        if seen == nth {
            let mut payload = frame[HEADER_LEN..].to_vec();
            change(&mut payload);
            set_payload(frame, &payload);
        }
        seen += 1;
    })
}

/// A network for a simulation of distances from `seed`, in which `change` alters the text inside
/// the seal of message `nth` from `from` to `to`. Messages without a seal stay as they are.
///
/// # Errors
/// [`SealError`] when the two parties' keys, which follow from `seed`, give no shared secret.
pub fn inside<'a>(
    seed: [u8; 32],
    link: (PartyId, PartyId, usize),
    change: impl Fn(&mut Vec<u8>) + 'a,
) -> Result<Network<'a>, SealError> {
    inside_shown(seed, link, change, |_| ())
}

/// [`inside`] that also passes the new payload to `show`.
///
/// # Errors
/// [`SealError`] as [`inside`].
///
/// # Panics
/// When a channel has sealed all the messages that it can.
#[allow(clippy::unwrap_used)]
pub fn inside_shown<'a>(
    seed: [u8; 32],
    (from, to, nth): (PartyId, PartyId, usize),
    change: impl Fn(&mut Vec<u8>) + 'a,
    show: impl Fn(&[u8]) + 'a,
) -> Result<Network<'a>, SealError> {
    let seed = Seed::from_bytes(seed);
    let session = seed.derive(SessionId([0; 32]), "simulated session", &[]);
    let session = SessionId(*session.expose());
    let key = |id: PartyId| {
        KeyPair::from_seed(&seed.derive(session, "simulated client", &[id.to_wire()]))
    };
    let (own, others) = (key(from), key(to));
    let reader = Channel::agree(session, to, &others, from, own.public())?;
    let writer = Channel::agree(session, from, &own, to, others.public())?;
    // The seals of `lwe` for several receivers.
    let common = seed.derive(session, "simulated group", &[]);
    let shared = |purpose: &str, ids: &[u32]| {
        let secret = common.derive(session, purpose, ids);
        Ends::Shared(Broadcast::new(session, &secret, from), 0)
    };
    let mut ends = [
        Ends::Pair(Box::new([reader, writer])),
        shared("lwe keys", &[from.to_wire()]),
        shared("lwe headers", &[from.to_wire(), 0]),
    ];
    let mut seen = 0;
    Ok(Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) && seen <= nth && frame.len() > HEADER_LEN {
            let due = seen == nth;
            seen += 1;
            let opened = ends.iter_mut().find_map(|ends| {
                let text = ends.open(&frame[HEADER_LEN..]).ok()?;
                Some((ends, text))
            });
            // A message that is not sealed.
            let Some((ends, mut text)) = opened else {
                return;
            };
            if due {
                change(&mut text);
            }
            let sealed = ends.seal(&text).unwrap();
            if due {
                show(&sealed);
            }
            set_payload(frame, &sealed);
        }
    }))
}

/// A receiver and a sender of the same sealed messages.
enum Ends {
    Pair(Box<[Channel; 2]>),
    /// And the number of the next message.
    Shared(Broadcast, u64),
}

impl Ends {
    fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        match self {
            Self::Pair(both) => both[0].open(sealed),
            Self::Shared(both, next) => both.open(*next, sealed),
        }
    }

    fn seal(&mut self, text: &[u8]) -> Result<Vec<u8>, SealError> {
        match self {
            Self::Pair(both) => both[1].seal(text),
            Self::Shared(both, next) => {
                *next += 1;
                both.seal(*next - 1, text)
            }
        }
    }
}

/// Asserts that a malformed message from `culprit` in `phase` caused `aborted`.
///
/// # Panics
/// When something else did.
pub fn assert_malformed(aborted: &Aborted, culprit: PartyId, phase: Phase) {
    assert!(
        matches!(aborted.cause, Abort::Malformed { .. }),
        "{aborted}"
    );
    assert_eq!(
        (aborted.cause.culprit(), aborted.phase),
        (Some(culprit), phase),
        "{aborted}"
    );
}

/// Asserts that a check that `culprit` failed in `phase` caused `aborted`, and that its fault
/// contains `expected`.
///
/// # Panics
/// When something else did.
pub fn assert_cheated(aborted: &Aborted, culprit: PartyId, phase: Phase, expected: &str) {
    let Abort::Cheated {
        culprit: found,
        fault,
    } = &aborted.cause
    else {
        panic!("{aborted}");
    };
    assert_eq!((*found, aborted.phase), (culprit, phase), "{aborted}");
    assert!(fault.contains(expected), "'{fault}' lacks '{expected}'");
}
