//! What a client's stream carries: whole frames, and headers of frames that have the payload of the
//! frame before.

use tonic::codegen::Bytes;
use undertone_party::frame::HEADER_LEN;
use undertone_party::{FrameError, Header, Limits, PartyId};

use crate::drive::limits;
use crate::flow::Violation;

/// A frame as it came over a client's stream.
#[derive(Debug, Clone)]
pub(crate) enum Upload {
    Whole(Bytes),
    /// A header of [`HEADER_LEN`] bytes, and the payload of an earlier frame.
    Header {
        header: Bytes,
        payload: Bytes,
    },
}

impl Upload {
    pub(crate) fn header(&self, limits: &Limits) -> Result<Header, FrameError> {
        match self {
            Self::Whole(frame) => Header::parse(frame, limits),
            Self::Header { header, payload } => Header::parse_apart(header, payload.len(), limits),
        }
    }

    /// Bytes of the whole frame.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(frame) => frame.len(),
            Self::Header { header, payload } => header.len() + payload.len(),
        }
    }

    /// Bytes of the frame that did not come again.
    pub(crate) fn spared(&self) -> usize {
        match self {
            Self::Whole(_) => 0,
            Self::Header { payload, .. } => payload.len(),
        }
    }

    /// The whole frame.
    pub(crate) fn whole(self) -> Bytes {
        match self {
            Self::Whole(frame) => frame,
            Self::Header { header, payload } => [header, payload].concat().into(),
        }
    }
}

/// The payload of the last whole frame of a stream, if that frame was for another client.
#[derive(Debug, Default)]
pub(crate) struct Kept(Option<Bytes>);

impl Kept {
    /// Takes a whole frame, and keeps its payload in place of the one before. Shares the bytes.
    pub(crate) fn frame(&mut self, frame: Bytes) -> Upload {
        let header = Header::parse(&frame, &limits());
        let relayed = header.is_ok_and(|header| header.to != PartyId::SERVER);
        self.0 = relayed.then(|| frame.slice(HEADER_LEN..));
        Upload::Whole(frame)
    }

    /// Takes the header of a frame with the payload of the last whole frame.
    ///
    /// # Errors
    /// A [`Violation`] when the header and the payload do not belong together.
    pub(crate) fn header(&self, header: Bytes) -> Result<Upload, Violation> {
        // NET-31
        if header.len() != HEADER_LEN {
            return Err(Violation::Bare("it does not have 64 bytes"));
        }
        let payload = self.0.clone();
        let payload = payload.ok_or(Violation::Bare("no frame to a client came before it"))?;
        let read = Header::parse_apart(&header, payload.len(), &limits())?;
        if read.to == PartyId::SERVER {
            return Err(Violation::Bare("it is for the server"));
        }
        Ok(Upload::Header { header, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_party::SessionId;
    use undertone_party::frame::Kind;

    fn frame(to: PartyId, payload: &[u8]) -> Bytes {
        let header = Header {
            kind: Kind::Message,
            phase: 1,
            from: PartyId::client(0),
            to,
            seq: 0,
            depth: 0,
            len: 0,
            session: SessionId([4; 32]),
        };
        header.frame(payload).into()
    }

    /// NET-31
    #[test]
    fn a_header_takes_the_payload_of_the_last_frame_to_a_client() {
        let [one, two] = [1, 2].map(PartyId::client);
        let mut kept = Kept::default();
        let header = |to, payload: &[u8]| frame(to, payload).slice(..HEADER_LEN);
        let alone = kept.header(header(two, b"keys"));
        assert!(matches!(alone, Err(Violation::Bare(_))));

        let first = frame(one, b"keys");
        assert_eq!(kept.frame(first.clone()).whole(), first);
        for _ in 0..2 {
            let again = kept.header(header(two, b"keys")).unwrap();
            assert_eq!((again.len(), again.spared()), (HEADER_LEN + 4, 4));
            assert_eq!(again.whole(), frame(two, b"keys"));
        }
        for (bad, is_length) in [
            (header(two, b"other"), true),
            (header(PartyId::SERVER, b"keys"), false),
            (header(two, b"keys").slice(..63), false),
            (frame(two, b"keys"), false),
        ] {
            match kept.header(bad).unwrap_err() {
                Violation::Frame(FrameError::Length { .. }) => assert!(is_length),
                why => assert!(!is_length && matches!(why, Violation::Bare(_))),
            }
        }

        // A frame to the server, or one that is none, leaves nothing.
        for last in [frame(PartyId::SERVER, b"keys"), first.slice(..HEADER_LEN)] {
            drop(kept.frame(first.clone()));
            drop(kept.frame(last));
            assert!(kept.header(header(two, b"keys")).is_err());
        }
    }

    #[test]
    fn the_kept_payload_is_no_copy() {
        let first = frame(PartyId::client(1), b"keys");
        let mut kept = Kept::default();
        drop(kept.frame(first.clone()));
        assert_eq!(kept.0.unwrap().as_ptr(), first[HEADER_LEN..].as_ptr());
    }
}
