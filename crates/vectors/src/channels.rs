//! Vectors for agreed secrets, seals, signatures and frames.

use schemars::JsonSchema;
use serde::Serialize;
use undertone::party::frame::{Header, Kind};
use undertone::party::{Limits, PartyId, SessionId};
use undertone::setup::identity::{Identity, Pins};
use undertone::setup::seal::{Channel, KeyPair};

use crate::points;
use crate::primitives::{SESSION, seed};
use crate::{Error, File, Hex, hex};

/// A secret of two key pairs: `extract(purpose, X25519 ‖ both public keys, the smaller first)`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Agreement {
    session: Hex,
    purpose: String,
    secret_keys: [Hex; 2],
    public_keys: [Hex; 2],
    agreed: Hex,
}

/// A public key that is refused (SETUP-11).
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedKey {
    comment: String,
    secret_key: Hex,
    public_key: Hex,
    check: String,
}

fn agreement(purpose: &str) -> Result<Agreement, Error> {
    let [a, b] = [7, 8].map(|byte| KeyPair::from_seed(&seed(byte)));
    Ok(Agreement {
        session: hex(&SESSION.0),
        purpose: purpose.into(),
        secret_keys: [7, 8].map(|byte| hex(&[byte; 32])),
        public_keys: [hex(&a.public()), hex(&b.public())],
        agreed: hex(a.agree(SESSION, purpose, b.public())?.expose()),
    })
}

fn refused_keys() -> Result<Vec<RefusedKey>, Error> {
    let refused = |(comment, public): (&str, [u8; 32])| match KeyPair::from_seed(&seed(7))
        .agree(SESSION, "pair", public)
    {
        Ok(_) => Err(Error::Accepted(comment.into())),
        Err(error) => Ok(RefusedKey {
            comment: comment.into(),
            secret_key: hex(&[7; 32]),
            public_key: hex(&public),
            check: error.to_string(),
        }),
    };
    points::agreement().into_iter().map(refused).collect()
}

/// Sealed messages from client 3 to client 1, in order, and back.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Seals {
    session: Hex,
    pair_secret: Hex,
    /// Pairs of a plaintext and its sealed message.
    there: Vec<[Hex; 2]>,
    back: Vec<[Hex; 2]>,
}

/// A sealed message that does not open (SETUP-15). Client 1 gets it as the message of that number
/// from client 3, after the messages before it have opened.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedSeal {
    comment: String,
    session: Hex,
    pair_secret: Hex,
    number: usize,
    sealed: Hex,
    check: String,
}

fn seals() -> Result<(Seals, Vec<RefusedSeal>), Error> {
    let (me, peer) = (PartyId::client(3), PartyId::client(1));
    let mut out = Channel::new(SESSION, &seed(9), me, peer);
    let mut back = Channel::new(SESSION, &seed(9), peer, me);
    let (texts, answer): ([&[u8]; 3], &[u8]) = ([b"first", &[0xa5; 70], b""], b"yes");
    let mut there = Vec::new();
    for text in texts {
        there.push(out.seal(text)?);
    }
    let answered = back.seal(answer)?;
    let mut bad: Vec<(&str, usize, Vec<u8>)> = Vec::new();
    for (comment, at) in [
        ("a changed bit of the text", 3),
        ("a changed bit of the tag", 70),
    ] {
        let mut sealed = there[1].clone();
        sealed[at] ^= 0x10;
        bad.push((comment, 1, sealed));
    }
    bad.push(("a message twice", 1, there[0].clone()));
    bad.push(("a message before its turn", 0, there[1].clone()));
    bad.push(("a message of the other direction", 0, answered.clone()));
    bad.push(("truncated", 1, there[1][..85].to_vec()));
    bad.push(("shorter than a tag", 0, vec![0; 15]));
    let other = SessionId([0x52; 32]);
    let elsewhere = Channel::new(other, &seed(9), me, peer).seal(b"first")?;
    bad.push(("a message of another session", 0, elsewhere));
    let moved = Channel::new(SESSION, &seed(9), PartyId::client(2), peer).seal(b"first")?;
    bad.push(("a message of another client", 0, moved));
    let mut refused = Vec::new();
    for (comment, number, sealed) in bad {
        let mut reader = Channel::new(SESSION, &seed(9), peer, me);
        for message in &there[..number] {
            reader.open(message)?;
        }
        let Err(error) = reader.open(&sealed) else {
            return Err(Error::Accepted(comment.into()));
        };
        refused.push(RefusedSeal {
            comment: comment.into(),
            session: hex(&SESSION.0),
            pair_secret: hex(&[9; 32]),
            number,
            sealed: hex(&sealed),
            check: error.to_string(),
        });
    }
    let case = Seals {
        session: hex(&SESSION.0),
        pair_secret: hex(&[9; 32]),
        there: texts
            .iter()
            .zip(&there)
            .map(|(text, sealed)| [hex(text), hex(sealed)])
            .collect(),
        back: vec![[hex(answer), hex(&answered)]],
    };
    Ok((case, refused))
}

/// An Ed25519 signature over `undertone/v1/` ‖ `purpose` ‖ `session` ‖ `body`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Signed {
    comment: String,
    /// The secret key of RFC 8032. None if there is a public key only.
    secret_key: Option<Hex>,
    public_key: Hex,
    session: Hex,
    purpose: String,
    body: Hex,
    signature: Hex,
    /// For a refused signature: the reason.
    check: Option<String>,
}

fn signatures() -> Result<(Vec<Signed>, Vec<Signed>), Error> {
    let me = PartyId::client(0);
    let identity = Identity::from_seed(&seed(10));
    let pins = Pins::new([(me, identity.public())])?;
    let (purpose, body) = ("sign setup", b"what is signed");
    let signature = identity.sign(SESSION, purpose, body);
    let case =
        |comment: &str, session: SessionId, purpose: &str, body: &[u8], signature: &[u8]| Signed {
            comment: comment.into(),
            secret_key: Some(hex(&[10; 32])),
            public_key: hex(&identity.public()),
            session: hex(&session.0),
            purpose: purpose.into(),
            body: hex(body),
            signature: hex(signature),
            check: None,
        };
    let good = vec![
        case("a hello's purpose", SESSION, purpose, body, &signature),
        case(
            "no body",
            SESSION,
            "sign contributors",
            b"",
            &identity.sign(SESSION, "sign contributors", b""),
        ),
    ];
    let mut changed = signature;
    changed[5] ^= 1;
    // s plus the group order: valid for a verifier that does not check s.
    let mut malleable = signature;
    let order = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut carry = 0u16;
    for (byte, add) in malleable[32..].iter_mut().zip(order) {
        carry += u16::from(*byte) + add;
        *byte = carry as u8;
        carry >>= 8;
    }
    // SETUP-16. A signature with such an R fits if R counts as the identity.
    let message = [b"undertone/v1/", purpose.as_bytes(), &SESSION.0, body].concat();
    let points = points::low_order()
        .into_iter()
        .chain([points::NOT_CANONICAL]);
    let with_r = points.map(|(what, r)| {
        let s = points::response(&[10; 32], &identity.public(), &r, &message);
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&r);
        signature[32..].copy_from_slice(&s);
        (format!("R is {what}"), signature)
    });
    let with_r: Vec<(String, [u8; 64])> = with_r.collect();
    let bad = [
        (
            "another session",
            SessionId([0x52; 32]),
            purpose,
            &body[..],
            signature,
        ),
        ("another purpose", SESSION, "sign sum keys", body, signature),
        (
            "another body",
            SESSION,
            purpose,
            b"what is not signed",
            signature,
        ),
        ("a changed bit", SESSION, purpose, body, changed),
        ("s not below the order", SESSION, purpose, body, malleable),
    ];
    let with_r = with_r
        .iter()
        .map(|(comment, signature)| (&comment[..], SESSION, purpose, &body[..], *signature));
    let mut refused = Vec::new();
    for (comment, session, purpose, body, signature) in bad.into_iter().chain(with_r) {
        if pins.verify(me, session, purpose, body, &signature) {
            return Err(Error::Accepted(comment.into()));
        }
        refused.push(Signed {
            check: Some("the signature does not fit".into()),
            secret_key: None,
            ..case(comment, session, purpose, body, &signature)
        });
    }
    // SETUP-17.
    let points = points::low_order()
        .into_iter()
        .chain([points::NOT_CANONICAL]);
    for (what, key) in points {
        let Err(error) = Pins::new([(me, key)]) else {
            return Err(Error::Accepted(format!("a key that is {what}")));
        };
        refused.push(Signed {
            secret_key: None,
            public_key: hex(&key),
            check: Some(error.to_string()),
            ..case(
                &format!("the key is {what}"),
                SESSION,
                purpose,
                body,
                &[0; 64],
            )
        });
    }
    Ok((good, refused))
}

/// A frame.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Frame {
    comment: String,
    /// 0 message, 1 abort.
    kind: u8,
    phase: u8,
    from: u32,
    to: u32,
    /// The number of the frame from this sender to this receiver.
    number: u32,
    depth: u32,
    session: Hex,
    payload: Hex,
    /// Header and payload.
    frame: Hex,
}

/// A frame that is refused by a receiver that accepts payloads of `max_payload` bytes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedFrame {
    comment: String,
    max_payload: usize,
    frame: Hex,
    check: String,
}

fn frames() -> Result<(Vec<Frame>, Vec<RefusedFrame>), Error> {
    let make = |comment: &str, kind: Kind, from: PartyId, to: PartyId, payload: &[u8]| {
        let header = Header {
            kind,
            phase: 4,
            from,
            to,
            seq: 3,
            depth: 258,
            len: payload.len() as u32,
            session: SESSION,
        };
        Frame {
            comment: comment.into(),
            kind: u8::from(kind == Kind::Abort),
            phase: 4,
            from: from.to_wire(),
            to: to.to_wire(),
            number: 3,
            depth: 258,
            session: hex(&SESSION.0),
            payload: hex(payload),
            frame: hex(&header.frame(payload.to_vec())),
        }
    };
    let (client, server) = (PartyId::client(70_000), PartyId::SERVER);
    let cases = vec![
        make("a message", Kind::Message, client, server, b"bytes"),
        make("an empty message", Kind::Message, server, client, b""),
        make("an abort", Kind::Abort, client, PartyId::client(2), b""),
    ];
    let limits = Limits {
        max_payload: 10,
        ..Limits::default()
    };
    let header = Header {
        kind: Kind::Message,
        phase: 4,
        from: client,
        to: server,
        seq: 0,
        depth: 1,
        len: 5,
        session: SESSION,
    };
    let good = header.frame(b"bytes".to_vec());
    Header::parse(&good, &limits).map_err(|_| Error::Missing("a frame"))?;
    let changed = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let mut long = good.clone();
    long.extend([0; 6]);
    long[24] = 11;
    let mut stretched = good.clone();
    stretched.push(0);
    let bad = [
        ("truncated in the header", good[..63].to_vec()),
        ("not UT", changed(0, b'V')),
        ("another version", changed(2, 2)),
        ("neither message nor abort", changed(3, 2)),
        ("byte 5 is not zero", changed(5, 1)),
        ("byte 28 is not zero", changed(28, 1)),
        ("truncated in the payload", good[..68].to_vec()),
        ("longer than the header says", stretched),
        ("longer than the limit", long),
        ("an abort with a payload", changed(3, 1)),
    ];
    let mut refused = Vec::new();
    for (comment, frame) in bad {
        let Err(error) = Header::parse(&frame, &limits) else {
            return Err(Error::Accepted(comment.into()));
        };
        refused.push(RefusedFrame {
            comment: comment.into(),
            max_payload: limits.max_payload,
            frame: hex(&frame),
            check: error.to_string(),
        });
    }
    Ok((cases, refused))
}

/// Their files.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let mut all = Vec::new();
    let agreements = vec![agreement("sum pair")?, agreement("mask pair")?];
    let place = "docs/spec/setup.md, Agreed secrets";
    all.extend(crate::files(
        "agreement",
        place,
        agreements,
        refused_keys()?,
    )?);
    let (seals, bad) = seals()?;
    all.extend(crate::files(
        "seal",
        "docs/spec/setup.md, Seals",
        vec![seals],
        bad,
    )?);
    let (signed, bad) = signatures()?;
    all.extend(crate::files(
        "signature",
        "docs/spec/setup.md, Signatures",
        signed,
        bad,
    )?);
    let (cases, bad) = frames()?;
    let place = "docs/spec/conventions.md, Frames";
    all.extend(crate::files("frame", place, cases, bad)?);
    Ok(all)
}
