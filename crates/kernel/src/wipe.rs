//! Bulk secrets that are wiped on drop.
//!
//! [`zeroize::Zeroizing`] writes element by element. [`Wiped`] fills the whole allocation at once,
//! which takes no measurable time compared with computing its contents.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zeroize::{ZeroizeOnDrop, optimization_barrier};

/// Types that a [`Wiped`] vector can hold: plain values without pointers.
pub trait Plain: Copy {
    /// The value that overwrites others. It must overwrite all bytes of a value.
    const BLANK: Self;
}

macro_rules! plain {
    ($($number:ty),*) => {
        $(impl Plain for $number {
            const BLANK: Self = 0 as $number;
        })*
    };
}

plain!(u8, u16, u32, u64, u128, f32, f64);

impl<T: Plain, const N: usize> Plain for [T; N] {
    const BLANK: Self = [T::BLANK; N];
}

/// `None` would leave the old value in memory.
impl<T: Plain> Plain for Option<T> {
    const BLANK: Self = Some(T::BLANK);
}

/// A vector whose whole allocation is wiped on drop, including the part past its end. `Debug` shows
/// only its length.
///
/// A growing vector moves, and its old allocation is not wiped. So allocate with capacity, or grow
/// it by [`reserve`](Self::reserve).
#[derive(Clone, PartialEq, Eq)]
pub struct Wiped<T: Plain>(Vec<T>);

impl<T: Plain> Wiped<T> {
    /// An empty vector with room for `count` values.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Makes room for `count` more values. If the vector has to move, its old allocation is wiped.
    pub fn reserve(&mut self, count: usize) {
        let due = self.0.len() + count;
        if due > self.0.capacity() {
            let mut moved = Self::with_capacity(due.max(2 * self.0.len()));
            moved.0.extend_from_slice(&self.0);
            *self = moved;
        }
    }

    /// The vector itself. It is not wiped any more.
    pub fn into_inner(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }

    /// Overwrites the whole allocation. The vector then has the length of its capacity.
    fn wipe(&mut self) {
        self.0.clear();
        self.0.resize(self.0.capacity(), T::BLANK);
        // Otherwise the compiler could leave out writes that are never read.
        optimization_barrier(self.0.as_slice());
    }
}

impl<T: Plain> Drop for Wiped<T> {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl<T: Plain> ZeroizeOnDrop for Wiped<T> {}

impl<T: Plain> Default for Wiped<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Plain> From<Vec<T>> for Wiped<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T: Plain> Deref for Wiped<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Plain> DerefMut for Wiped<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Plain> fmt::Debug for Wiped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wiped({}, ..)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BitMatrix, Matrix16};

    fn wiped<T: ZeroizeOnDrop>() {}

    #[test]
    fn bulk_types_wipe_themselves() {
        wiped::<Wiped<u16>>();
        wiped::<BitMatrix>();
        wiped::<Matrix16>();
    }

    /// The part past the end is wiped, too, and in place.
    #[test]
    fn the_whole_allocation_is_overwritten() {
        let mut values = Wiped::from(vec![7u16; 100]);
        let at = values.as_ptr();
        values.truncate(3);
        values.wipe();
        assert_eq!((values.as_ptr(), &values[..]), (at, &[0; 100][..]));
        let mut labels = Wiped::from(vec![Some(7u16), None]);
        labels.wipe();
        assert_eq!(labels[..], [Some(0); 2]);
    }

    #[test]
    fn room_is_made_without_loss() {
        let mut values = Wiped::from(vec![1u64, 2, 3]);
        values.shrink_to_fit();
        values.reserve(1);
        assert!(values.capacity() >= 6);
        assert_eq!(values[..], [1, 2, 3]);
        assert_eq!(values.into_inner(), [1, 2, 3]);
    }

    #[test]
    fn contents_are_not_shown() {
        let shown = format!("{:?}", Wiped::from(vec![77u8; 5]));
        assert_eq!(shown, "Wiped(5, ..)");
    }
}
