//! Adam, in double precision and a fixed order, so that all clients take the same step.

use undertone_kernel::Wiped;

const DECAYS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;

/// The state of Adam (Kingma and Ba 2015) for one vector of parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Adam {
    /// The moving means of slopes, and of their squares.
    pub(crate) moments: [Wiped<f64>; 2],
    /// 0.9ᵗ and 0.999ᵗ, by repeated products.
    pub(crate) powers: [f64; 2],
}

impl Adam {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            moments: [vec![0.0; count].into(), vec![0.0; count].into()],
            powers: [1.0; 2],
        }
    }

    /// Takes a step against `slopes`.
    pub(crate) fn step(&mut self, rate: f64, params: &mut [f64], slopes: &[f64]) {
        for (power, decay) in self.powers.iter_mut().zip(DECAYS) {
            *power *= decay;
        }
        let [first, second] = &mut self.moments;
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((param, slope), (mean, square)) in params.iter_mut().zip(slopes).zip(moments) {
            *mean = DECAYS[0] * *mean + (1.0 - DECAYS[0]) * slope;
            *square = DECAYS[1] * *square + (1.0 - DECAYS[1]) * (slope * slope);
            let (mean, square) = (
                *mean / (1.0 - self.powers[0]),
                *square / (1.0 - self.powers[1]),
            );
            *param -= rate * mean / (square.sqrt() + EPSILON);
        }
    }
}
