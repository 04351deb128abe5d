//! The frame: a header of 64 bytes, then the payload. See `docs/spec/conventions.md`, *Frames*.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | magic `UT` |
//! | 2 | version, 1 |
//! | 3 | kind: 0 message, 1 abort |
//! | 4 | phase |
//! | 5..8 | zero |
//! | 8..12 | sender |
//! | 12..16 | receiver |
//! | 16..20 | number of the frame on the link from sender to receiver, from 0 |
//! | 20..24 | causal depth: one more than the largest depth that the sender had consumed |
//! | 24..28 | payload length |
//! | 28..32 | zero |
//! | 32..64 | session id |

use crate::codec::{DecodeError, Reader, Writer};
use crate::party::PartyId;

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 64;

/// Largest tile of a long array in bytes. Senders split longer arrays into several messages.
pub const TILE_BYTES: usize = 1 << 20;

const MAGIC: [u8; 2] = *b"UT";
const VERSION: u8 = 1;

/// The id of a session: 32 fresh bytes that the server chooses. Every frame repeats them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 32]);

impl SessionId {
    /// A fresh id from the operating system.
    ///
    /// # Errors
    /// When the operating system provides no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut id = [0; 32];
        getrandom::fill(&mut id)?;
        Ok(Self(id))
    }
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message of a protocol.
    Message,
    /// The sender has aborted. There is no payload.
    Abort,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Message or abort.
    pub kind: Kind,
    /// [`Phase::id`](crate::Phase) of the step that sent it.
    pub phase: u8,
    /// Sender.
    pub from: PartyId,
    /// Receiver.
    pub to: PartyId,
    /// Number of the frame on the link from sender to receiver, from 0.
    pub seq: u32,
    /// Causal depth.
    pub depth: u32,
    /// Payload length in bytes.
    pub len: u32,
    /// The session.
    pub session: SessionId,
}

/// Bounds on what an endpoint takes from its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload in bytes.
    pub max_payload: usize,
    /// Most frames of one sender that are kept, the one whose turn it is included.
    pub max_early_frames: u32,
    /// Most bytes of one sender that are kept. The frame whose turn it is may exceed them.
    pub max_early_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_payload: 4 << 20,
            max_early_frames: 64,
            max_early_bytes: 4 << 20,
        }
    }
}

/// Why a frame was refused. The endpoint drops the frame and continues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header does not decode.
    #[error("frame header: {0}")]
    Header(#[from] DecodeError),
    /// Not a frame of this protocol and version.
    #[error("not an Undertone frame of version 1")]
    Unknown,
    /// The payload is not as long as the header says.
    #[error("the header announces {announced} payload bytes, {have} are there")]
    Length {
        /// The length in the header.
        announced: usize,
        /// The length of the payload.
        have: usize,
    },
    /// The payload is longer than [`Limits::max_payload`].
    #[error("payload of {len} bytes, at most {max} are accepted")]
    TooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The frame belongs to another session.
    #[error("frame of another session")]
    Session,
    /// The sender or the receiver in the header is not an end of the link that the frame came by.
    #[error("frame from {from} to {to} came by the link from {link} to {me}")]
    Address {
        /// Sender in the header.
        from: PartyId,
        /// Receiver in the header.
        to: PartyId,
        /// The party at the other end of the link.
        link: PartyId,
        /// The party that received the frame.
        me: PartyId,
    },
    /// An abort with a payload.
    #[error("an abort with a payload")]
    LoudAbort,
    /// A frame with this number came before.
    #[error("frame {seq} came twice")]
    Replayed {
        /// Its number.
        seq: u32,
    },
}

/// The bytes of a message, in the buffer of their frame. So sending a message does not copy it.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    frame: Vec<u8>,
}

impl Payload {
    /// The payload of `frame`: all bytes after the first [`HEADER_LEN`]. The header is not read.
    ///
    /// # Panics
    /// When `frame` is shorter than a header.
    pub fn within(frame: Vec<u8>) -> Self {
        assert!(frame.len() >= HEADER_LEN, "room for a header");
        Self { frame }
    }

    /// The whole buffer: [`HEADER_LEN`] bytes, then the payload. A caller can wipe it.
    pub fn into_frame(self) -> Vec<u8> {
        self.frame
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&bytes[..])
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        let mut frame = Vec::with_capacity(HEADER_LEN + bytes.len());
        frame.resize(HEADER_LEN, 0);
        frame.extend_from_slice(bytes);
        Self { frame }
    }
}

impl<const N: usize> From<&[u8; N]> for Payload {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame[HEADER_LEN..]
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

impl Header {
    /// The frame of `payload` under this header. Sets `len` to the length of `payload`.
    pub fn frame(mut self, payload: impl Into<Payload>) -> Vec<u8> {
        let Payload { mut frame } = payload.into();
        self.len = (frame.len() - HEADER_LEN) as u32;
        let mut w = Writer::with_capacity(HEADER_LEN);
        w.raw(&MAGIC);
        w.u8(VERSION);
        w.u8(match self.kind {
            Kind::Message => 0,
            Kind::Abort => 1,
        });
        w.u32(self.phase.into());
        w.u32(self.from.to_wire());
        w.u32(self.to.to_wire());
        w.u32(self.seq);
        w.u32(self.depth);
        w.u64(self.len.into());
        w.raw(&self.session.0);
        frame[..HEADER_LEN].copy_from_slice(&w.finish());
        frame
    }

    /// Reads the header of `frame` and checks the payload's length.
    ///
    /// # Errors
    /// A [`FrameError`] that says what is wrong with the frame.
    pub fn parse(frame: &[u8], limits: &Limits) -> Result<Self, FrameError> {
        let (header, payload) = frame.split_at(frame.len().min(HEADER_LEN));
        Self::parse_apart(header, payload.len(), limits)
    }

    /// Reads `header`, whose payload of `have` bytes is elsewhere, and checks the payload's length.
    /// Bytes after the first [`HEADER_LEN`] are not read.
    ///
    /// # Errors
    /// A [`FrameError`] that says what is wrong with the frame.
    pub fn parse_apart(header: &[u8], have: usize, limits: &Limits) -> Result<Self, FrameError> {
        let mut r = Reader::new(header);
        // FRAME-1
        let magic = r.array::<2>("magic")?;
        let version = r.u8("version")?;
        let kind = r.u8("kind")?;
        let phase = r.u32("phase")?;
        if magic != MAGIC || version != VERSION || phase > u8::MAX.into() {
            return Err(FrameError::Unknown);
        }
        let kind = match kind {
            0 => Kind::Message,
            1 => Kind::Abort,
            _ => return Err(FrameError::Unknown),
        };
        let from = PartyId::from_wire(r.u32("sender")?);
        let to = PartyId::from_wire(r.u32("receiver")?);
        let seq = r.u32("number")?;
        let depth = r.u32("depth")?;
        let announced = r.u64("length")?;
        let session = SessionId(r.array("session")?);
        // FRAME-2
        if have > limits.max_payload {
            return Err(FrameError::TooLong {
                len: have,
                max: limits.max_payload,
            });
        }
        // FRAME-3
        if announced != have as u64 {
            return Err(FrameError::Length {
                announced: usize::try_from(announced).unwrap_or(usize::MAX),
                have,
            });
        }
        // FRAME-4
        if kind == Kind::Abort && have > 0 {
            return Err(FrameError::LoudAbort);
        }
        Ok(Self {
            kind,
            phase: phase as u8,
            from,
            to,
            seq,
            depth,
            len: have as u32,
            session,
        })
    }
}
