//! Text that is compressed by gzip.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;

/// Longest text in a compressed file, in bytes.
const MAX_TEXT: u64 = 8 << 30;

/// The text of all members of a gzip file. Zeros behind the last one, with which some programs fill
/// blocks, are ignored, as `gzip -d` does.
pub(crate) struct Members<R> {
    /// The current member. `None` behind the last one.
    member: Option<GzDecoder<R>>,
    left: u64,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(file: R) -> Self {
        Self {
            member: Some(GzDecoder::new(file)),
            left: MAX_TEXT,
        }
    }

    /// The next member, if there is one.
    fn next(mut file: R) -> io::Result<Option<GzDecoder<R>>> {
        loop {
            let rest = file.fill_buf()?;
            match rest.first() {
                None => return Ok(None),
                Some(0x1f) => return Ok(Some(GzDecoder::new(file))),
                Some(0) => {
                    let zeros = rest.iter().take_while(|byte| **byte == 0).count();
                    file.consume(zeros);
                }
                Some(_) => {
                    let what = "other bytes follow the compressed text; unpack it with gunzip, \
                                and look at its end";
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
            }
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer);
            let read =
                read.map_err(|error| io::Error::new(error.kind(), format!("gzip: {error}")))?;
            if read > 0 || buffer.is_empty() {
                let too_long = || {
                    let what = "it holds more text than can be read";
                    io::Error::new(ErrorKind::InvalidData, what)
                };
                self.left = self.left.checked_sub(read as u64).ok_or_else(too_long)?;
                return Ok(read);
            }
            if let Some(member) = self.member.take() {
                self.member = Self::next(member.into_inner())?;
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn member(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        Members::new(bytes).read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn all_members_are_read_and_zeros_behind_them_are_not() {
        let parts = [member(b"one "), member(b""), member(b"two"), vec![0; 700]].concat();
        assert_eq!(unpack(&parts).unwrap(), b"one two");
        assert_eq!(unpack(&parts[..parts.len() - 700]).unwrap(), b"one two");
    }

    #[test]
    fn what_is_cut_or_damaged_is_refused() {
        let whole = member(b"some text, long enough to be cut");
        for len in 1..whole.len() {
            let error = unpack(&whole[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{len}: {error}");
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_ne!(
            unpack(&damaged).unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
        let followed = [whole, b"more".to_vec()].concat();
        assert!(
            unpack(&followed)
                .unwrap_err()
                .to_string()
                .contains("other bytes follow")
        );
    }
}
