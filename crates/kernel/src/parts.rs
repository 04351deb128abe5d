//! Long messages, written part by part on all threads into memory that is not cleared first.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rayon::prelude::*;

/// An invariant lifetime. Every [`Slot`] has one of its own.
type Brand<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// A part of a message, not written yet.
#[derive(Debug)]
pub struct Slot<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    brand: Brand<'a>,
}

/// Proof that the slot of that lifetime is written.
#[derive(Debug)]
pub struct Written<'a> {
    brand: Brand<'a>,
}

impl<'a> Slot<'a> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Clears the part, then calls `write` on it.
    pub fn clear(self, write: impl FnOnce(&mut [u8])) -> Written<'a> {
        let Self { bytes, brand } = self;
        bytes.fill(MaybeUninit::new(0));
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: all bytes have just been written, and `bytes` is borrowed for the rest of this
        // function.
        write(unsafe { std::slice::from_raw_parts_mut(start.cast(), len) });
        Written { brand }
    }

    /// Its bytes. They must not be read before they are written.
    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        self.bytes
    }

    /// # Safety
    /// All bytes have been written.
    pub(crate) unsafe fn written(self) -> Written<'a> {
        Written { brand: self.brand }
    }
}

/// A message of `room` zero bytes and then the parts, each with the given length, one after the
/// other; and the results of `write` for them. The parts are written in any order, on all threads
/// of the ambient pool.
pub fn message<P: Send, T: Send>(
    room: usize,
    parts: Vec<(P, usize)>,
    write: impl for<'a> Fn(P, Slot<'a>) -> (Written<'a>, T) + Sync,
) -> (Vec<u8>, Vec<T>) {
    let len: usize = parts.iter().map(|(_, len)| len).sum();
    let mut out = Vec::with_capacity(room + len);
    out.resize(room, 0);
    let mut rest = &mut out.spare_capacity_mut()[..len];
    let mut slots = Vec::with_capacity(parts.len());
    for (part, len) in parts {
        let (head, tail) = rest.split_at_mut(len);
        rest = tail;
        slots.push((part, head));
    }
    let one = |(part, bytes): (P, &mut [MaybeUninit<u8>])| {
        let brand = PhantomData;
        write(part, Slot { bytes, brand }).1
    };
    let results = match rayon::current_num_threads() {
        1 => slots.into_iter().map(one).collect(),
        _ => slots.into_par_iter().map(one).collect(),
    };
    // SAFETY: the parts are all of the `len` bytes after the room. For each part `write` returned a
    // proof that it is written, which only its own slot gives.
    unsafe { out.set_len(room + len) };
    (out, results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_where_they_belong() {
        let parts = vec![(1u8, 3), (2, 0), (3, 5)];
        let (out, lens) = message(2, parts, |value, slot| {
            let len = slot.len();
            (slot.clear(|bytes| bytes.fill(value)), len)
        });
        assert_eq!(out, [0, 0, 1, 1, 1, 3, 3, 3, 3, 3]);
        assert_eq!(lens, [3, 0, 5]);
        let (out, none) = message(1, Vec::<((), usize)>::new(), |(), slot| {
            (slot.clear(|_| ()), ())
        });
        assert_eq!((out, none.len()), (vec![0], 0));
    }
}
