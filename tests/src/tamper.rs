//! Networks that change what passes, and what must come of it.

use undertone::kdf::Seed;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId, Phase, SessionId};
use undertone::setup::seal::{Channel, KeyPair, SealError};

/// Puts `payload` in the place of that of `frame`.
pub fn set_payload(frame: &mut Vec<u8>, payload: &[u8]) {
    frame.truncate(HEADER_LEN);
    frame[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    frame.extend_from_slice(payload);
}

/// A network in which frame `nth` from `from` to `to` carries what `change` makes of its payload.
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

/// A network of a simulation of distances from `seed` in which the text that `from` seals to `to` as its message `nth` is
/// what `change` makes of it. Messages up to that one must be sealed.
///
/// # Errors
/// [`SealError`] when what `seed` makes of the two gives no shared secret.
///
/// # Panics
/// When one of them does not open.
pub fn inside<'a>(
    seed: [u8; 32],
    link: (PartyId, PartyId, usize),
    change: impl Fn(&mut Vec<u8>) + 'a,
) -> Result<Network<'a>, SealError> {
    inside_shown(seed, link, change, |_| ())
}

/// [`inside`], which shows the payload it puts in the place of the other.
///
/// # Errors
/// [`SealError`] when what `seed` makes of the two gives no shared secret.
///
/// # Panics
/// As [`inside`].
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
    let mut reader = Channel::agree(session, to, &others, from, own.public())?;
    let mut writer = Channel::agree(session, from, &own, to, others.public())?;
    let mut seen = 0;
    Ok(Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) && seen <= nth && frame.len() > HEADER_LEN {
            let mut text = reader.open(&frame[HEADER_LEN..]).unwrap();
            if seen == nth {
                change(&mut text);
            }
            let sealed = writer.seal(&text).unwrap();
            if seen == nth {
                show(&sealed);
            }
            set_payload(frame, &sealed);
            seen += 1;
        }
    }))
}

/// Holds `aborted` to a malformed message of `culprit` in `phase`.
///
/// # Panics
/// When it is something else.
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

/// Holds `aborted` to a check that `culprit` failed in `phase`, described with these words.
///
/// # Panics
/// When it is something else.
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
