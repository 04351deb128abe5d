//! A builder of circuits from numbers and comparisons.

use crate::circuit::{Circuit, Gate, Output};

/// A bit of a circuit that is being built: a constant, or a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bit(Output);

/// A number: its bits, the lowest first.
pub type Number = Vec<Bit>;

impl Bit {
    /// A constant.
    pub fn constant(bit: bool) -> Self {
        Self(Output::Constant(bit))
    }

    /// A wire and whether it is inverted; or the constant.
    fn wire(self) -> Result<(u32, bool), bool> {
        match self.0 {
            Output::Constant(bit) => Err(bit),
            Output::Wire(wire, not) => Ok((wire, not)),
        }
    }
}

/// The inverse, which costs nothing.
impl std::ops::Not for Bit {
    type Output = Self;

    fn not(self) -> Self {
        Self(match self.0 {
            Output::Constant(bit) => Output::Constant(!bit),
            Output::Wire(wire, not) => Output::Wire(wire, !not),
        })
    }
}

/// Builds a circuit. Only [`and`](Self::and) costs: the documentation of the others gives their
/// number of AND gates. Constants cost nothing, and gates of constants are left out.
#[derive(Debug, Clone)]
pub struct Builder {
    inputs: [usize; 2],
    gates: Vec<Gate>,
}

impl Builder {
    /// A circuit with these numbers of input bits, and no gates.
    pub fn new(garbler: usize, evaluator: usize) -> Self {
        Self {
            inputs: [garbler, evaluator],
            gates: Vec::new(),
        }
    }

    /// Input bit `index` of the garbler.
    ///
    /// # Panics
    /// When there is no such bit.
    pub fn garbler(&self, index: usize) -> Bit {
        assert!(index < self.inputs[0], "garbler's input {index}");
        Bit(Output::Wire(index as u32, false))
    }

    /// Input bit `index` of the evaluator.
    ///
    /// # Panics
    /// When there is no such bit.
    pub fn evaluator(&self, index: usize) -> Bit {
        assert!(index < self.inputs[1], "evaluator's input {index}");
        Bit(Output::Wire((self.inputs[0] + index) as u32, false))
    }

    /// The constant `value`, of `width` bits.
    pub fn number(&self, value: u64, width: usize) -> Number {
        let bit = |i| i < 64 && value >> i & 1 == 1;
        (0..width).map(|i| Bit::constant(bit(i))).collect()
    }

    fn push(&mut self, gate: Gate) -> u32 {
        self.gates.push(gate);
        (self.inputs[0] + self.inputs[1] + self.gates.len() - 1) as u32
    }

    /// a ⊕ b. Free.
    pub fn xor(&mut self, a: Bit, b: Bit) -> Bit {
        match (a.wire(), b.wire()) {
            (Err(constant), _) => {
                if constant {
                    !b
                } else {
                    b
                }
            }
            (_, Err(constant)) => {
                if constant {
                    !a
                } else {
                    a
                }
            }
            (Ok((x, p)), Ok((y, q))) if x == y => Bit::constant(p != q),
            (Ok((x, p)), Ok((y, q))) => Bit(Output::Wire(self.push(Gate::Xor([x, y])), p != q)),
        }
    }

    /// a ∧ b. One AND.
    pub fn and(&mut self, a: Bit, b: Bit) -> Bit {
        match (a.wire(), b.wire()) {
            (Err(constant), _) => {
                if constant {
                    b
                } else {
                    a
                }
            }
            (_, Err(constant)) => {
                if constant {
                    a
                } else {
                    b
                }
            }
            (Ok((x, p)), Ok((y, q))) if x == y => {
                if p == q {
                    a
                } else {
                    Bit::constant(false)
                }
            }
            (Ok((x, p)), Ok((y, q))) => {
                let of = Gate::And {
                    of: [x, y],
                    not: [p, q],
                };
                Bit(Output::Wire(self.push(of), false))
            }
        }
    }

    /// a ∨ b. One AND.
    pub fn or(&mut self, a: Bit, b: Bit) -> Bit {
        !self.and(!a, !b)
    }

    /// The majority of a, b and the carry c: one AND.
    fn carry(&mut self, a: Bit, b: Bit, c: Bit) -> Bit {
        let (x, y) = (self.xor(a, c), self.xor(b, c));
        let both = self.and(x, y);
        self.xor(both, c)
    }

    fn add_with(&mut self, a: &[Bit], b: &[Bit], mut carry: Bit) -> Number {
        assert_eq!(a.len(), b.len(), "widths of summands");
        let (mut sum, last) = (Number::with_capacity(a.len()), a.len().wrapping_sub(1));
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            let x = self.xor(*a, *b);
            sum.push(self.xor(x, carry));
            if i < last {
                carry = self.carry(*a, *b, carry);
            }
        }
        sum
    }

    /// a + b modulo 2^w. w − 1 ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn add(&mut self, a: &[Bit], b: &[Bit]) -> Number {
        self.add_with(a, b, Bit::constant(false))
    }

    /// a − b modulo 2^w. w − 1 ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn subtract(&mut self, a: &[Bit], b: &[Bit]) -> Number {
        let inverse: Number = b.iter().map(|bit| !*bit).collect();
        self.add_with(a, &inverse, Bit::constant(true))
    }

    /// Whether a < b, of numbers without sign. w ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn less(&mut self, a: &[Bit], b: &[Bit]) -> Bit {
        assert_eq!(a.len(), b.len(), "widths of compared numbers");
        let mut less = Bit::constant(false);
        for (a, b) in a.iter().zip(b) {
            less = self.carry(!*a, *b, less);
        }
        less
    }

    /// Whether a = b. w − 1 ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn equal(&mut self, a: &[Bit], b: &[Bit]) -> Bit {
        assert_eq!(a.len(), b.len(), "widths of compared numbers");
        let mut equal = Bit::constant(true);
        for (a, b) in a.iter().zip(b) {
            let differ = self.xor(*a, *b);
            equal = self.and(equal, !differ);
        }
        equal
    }

    /// a if `choice` is set, otherwise b. w ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn select(&mut self, choice: Bit, a: &[Bit], b: &[Bit]) -> Number {
        assert_eq!(a.len(), b.len(), "widths of alternatives");
        let pairs = a.iter().zip(b);
        pairs
            .map(|(a, b)| {
                let differ = self.xor(*a, *b);
                let change = self.and(choice, differ);
                self.xor(*b, change)
            })
            .collect()
    }

    /// The greater of both numbers. 2w ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn max(&mut self, a: &[Bit], b: &[Bit]) -> Number {
        let less = self.less(a, b);
        self.select(less, b, a)
    }

    /// The smaller of both numbers. 2w ANDs.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn min(&mut self, a: &[Bit], b: &[Bit]) -> Number {
        let less = self.less(b, a);
        self.select(less, b, a)
    }

    /// The index of the greatest number, in ⌈log₂ n⌉ bits, and that number. Ties go to the lowest
    /// index. About (n − 1)(2w + 1) ANDs.
    ///
    /// # Panics
    /// When there are no numbers, or their widths differ.
    pub fn argmax(&mut self, numbers: &[Number]) -> (Number, Number) {
        self.best(numbers, |this, a, b| this.less(a, b))
    }

    /// The index of the smallest number and that number, as [`argmax`](Self::argmax).
    ///
    /// # Panics
    /// As [`argmax`](Self::argmax).
    pub fn argmin(&mut self, numbers: &[Number]) -> (Number, Number) {
        self.best(numbers, |this, a, b| this.less(b, a))
    }

    /// A tournament of neighbours: `is_better(a, b)` says whether b beats a, which comes before it.
    fn best(
        &mut self,
        numbers: &[Number],
        is_better: impl Fn(&mut Self, &[Bit], &[Bit]) -> Bit,
    ) -> (Number, Number) {
        assert!(!numbers.is_empty(), "numbers to compare");
        let width = index_bits(numbers.len());
        let mut left: Vec<(Number, Number)> = (0..)
            .map(|index| self.number(index, width))
            .zip(numbers.iter().cloned())
            .collect();
        while left.len() > 1 {
            let pairs = std::mem::take(&mut left);
            for pair in pairs.chunks(2) {
                left.push(match pair {
                    [a, b] => {
                        let second = is_better(self, &a.1, &b.1);
                        let index = self.select(second, &b.0, &a.0);
                        (index, self.select(second, &b.1, &a.1))
                    }
                    _ => pair[0].clone(),
                });
            }
        }
        left.swap_remove(0)
    }

    /// The circuit with these outputs. Gates that none of them needs are left out.
    ///
    /// # Panics
    /// When it has more than [`MAX_OUTPUTS`](crate::circuit::MAX_OUTPUTS) outputs, or more AND
    /// gates than a garbled circuit may have.
    pub fn finish(self, outputs: &[Bit]) -> Circuit {
        let outputs: Vec<Output> = outputs.iter().map(|bit| bit.0).collect();
        Circuit::new(self.inputs, &self.gates, &outputs)
    }
}

/// ⌈log₂ count⌉: the bits of an index below `count`.
pub fn index_bits(count: usize) -> usize {
    count.max(1).next_power_of_two().trailing_zeros() as usize
}
