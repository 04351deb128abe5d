//! The kinds of networks, and the layers of each.

use undertone_kernel::Prg;
use undertone_train::ModelError;

/// The number of values of an embedding.
pub const EMBEDDING: usize = 64;

/// Channels after the first and the second convolution.
pub(crate) const CHANNELS: [usize; 2] = [16, 32];
/// Values of a 3×3 patch.
pub(crate) const TAPS: usize = 9;
/// The most parameters of a network: 64 MiB.
pub(crate) const MAX_PARAMS: usize = 1 << 24;

/// The architecture of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// For square images with one channel. A row has `side * side` values, line by line.
    ///
    /// 1. A 3×3 convolution, stride 2, padding 1, from 1 to 16 channels; ReLU.
    /// 2. A 3×3 convolution, stride 2, padding 1, from 16 to 32 channels; ReLU.
    /// 3. A linear layer from `32 * ⌈side / 4⌉²` to 64 values: the embedding; ReLU.
    /// 4. A linear layer from 64 values to the classes.
    Conv {
        /// The height and the width of an image, in pixels.
        side: usize,
        /// The number of classes.
        classes: usize,
    },
    /// For feature rows.
    ///
    /// 1. A linear layer from `features` to 64 values; ReLU.
    /// 2. A linear layer from 64 to 64 values: the embedding; ReLU.
    /// 3. A linear layer from 64 values to the classes.
    Mlp {
        /// The number of values in a row.
        features: usize,
        /// The number of classes.
        classes: usize,
    },
}

impl Kind {
    /// The kind that a job names: `conv` or `mlp`, for rows of `features` values.
    ///
    /// # Errors
    /// [`ModelError`] for other names, for images that are not square, and for sizes as in
    /// [`Net::new`](crate::Net::new).
    pub fn named(name: &str, features: usize, classes: usize) -> Result<Self, ModelError> {
        let side = features.isqrt();
        let kind = match name {
            "mlp" => Self::Mlp { features, classes },
            "conv" if side * side == features => Self::Conv { side, classes },
            "conv" => {
                return Err(ModelError(format!(
                    "conv is for square images; {features} features are none"
                )));
            }
            _ => {
                return Err(ModelError(format!(
                    "unknown kind {name:?}; there are conv and mlp"
                )));
            }
        };
        kind.check()?;
        Ok(kind)
    }

    /// The number of values in a row.
    pub fn dim(self) -> usize {
        match self {
            Self::Conv { side, .. } => side * side,
            Self::Mlp { features, .. } => features,
        }
    }

    /// The number of classes.
    pub fn classes(self) -> usize {
        match self {
            Self::Conv { classes, .. } | Self::Mlp { classes, .. } => classes,
        }
    }

    /// The number of parameters of one network: a mean teacher has as many of its own.
    pub fn params(self) -> usize {
        self.layers().iter().map(Layer::params).sum()
    }

    /// Refuses sizes of zero, and networks with more than 2²⁴ parameters.
    pub(crate) fn check(self) -> Result<(), ModelError> {
        // The first test keeps the products below from overflowing.
        let most = self.widest().max(self.classes());
        if most <= 1 << 16 && self.dim() > 0 && self.classes() > 0 && self.params() <= MAX_PARAMS {
            return Ok(());
        }
        Err(ModelError(format!(
            "{self:?}: sizes must be between 1 and 2^16, and parameters at most 2^24"
        )))
    }

    /// The largest size of an input, as the caller gave it.
    fn widest(self) -> usize {
        match self {
            Self::Conv { side, .. } => side,
            Self::Mlp { features, .. } => features,
        }
    }

    /// The layers, first to last.
    pub(crate) fn layers(self) -> Vec<Layer> {
        let linear = |name, taps, channels, outputs| Layer {
            name,
            taps,
            channels,
            outputs,
            convolution: false,
        };
        match self {
            Self::Conv { side, classes } => {
                let conv = |name, channels, outputs| Layer {
                    name,
                    taps: TAPS,
                    channels,
                    outputs,
                    convolution: true,
                };
                let pixels = halved(halved(side)).pow(2);
                vec![
                    conv("conv1", 1, CHANNELS[0]),
                    conv("conv2", CHANNELS[0], CHANNELS[1]),
                    linear("fc1", pixels, CHANNELS[1], EMBEDDING),
                    linear("fc2", 1, EMBEDDING, classes),
                ]
            }
            Self::Mlp { features, classes } => vec![
                linear("fc1", 1, features, EMBEDDING),
                linear("fc2", 1, EMBEDDING, EMBEDDING),
                linear("fc3", 1, EMBEDDING, classes),
            ],
        }
    }
}

/// The side of an image after a convolution with stride 2.
pub(crate) fn halved(side: usize) -> usize {
    side.div_ceil(2)
}

/// A layer: weights, then a bias for each output.
///
/// Its input is a position's or an image's channels. PyTorch orders weights by output, channel,
/// tap: [`Net`](crate::Net) gives and takes parameters in that order. Inside, the order is tap,
/// channel, output: then a patch is a few runs of channels, and a layer is one product of matrices.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// Its name in files.
    pub(crate) name: &'static str,
    /// Positions that it sees at once: those of a patch, or all of an image.
    taps: usize,
    /// Values of a position.
    channels: usize,
    /// Values that it computes.
    pub(crate) outputs: usize,
    convolution: bool,
}

impl Layer {
    /// Values that it reads for each of its outputs.
    pub(crate) fn inputs(&self) -> usize {
        self.taps * self.channels
    }

    pub(crate) fn weights(&self) -> usize {
        self.inputs() * self.outputs
    }

    pub(crate) fn params(&self) -> usize {
        self.weights() + self.outputs
    }

    /// The shape of the weights in a file.
    pub(crate) fn shape(&self) -> Vec<usize> {
        if self.convolution {
            vec![self.outputs, self.channels, 3, 3]
        } else {
            vec![self.outputs, self.inputs()]
        }
    }

    /// For each weight in PyTorch's order, its place in the order inside.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.outputs).flat_map(move |output| {
            (0..self.channels).flat_map(move |channel| {
                (0..self.taps)
                    .map(move |tap| (tap * self.channels + channel) * self.outputs + output)
            })
        })
    }
}

/// Parameters of `layers` in PyTorch's order, from those in the order inside.
pub(crate) fn exported(layers: &[Layer], inside: &[f32]) -> Vec<f32> {
    let mut out = Vec::with_capacity(inside.len());
    let mut rest = inside;
    for layer in layers {
        let (own, after) = rest.split_at(layer.params());
        out.extend(layer.places().map(|place| own[place]));
        out.extend_from_slice(&own[layer.weights()..]);
        rest = after;
    }
    out
}

/// The inverse of [`exported`].
pub(crate) fn imported(layers: &[Layer], outside: &[f32]) -> Vec<f32> {
    let mut inside = outside.to_vec();
    let mut start = 0;
    for layer in layers {
        let (from, to) = (&outside[start..], &mut inside[start..]);
        for (value, place) in from.iter().zip(layer.places()) {
            to[place] = *value;
        }
        start += layer.params();
    }
    inside
}

/// Initial parameters in PyTorch's order: uniform between ±1/√(inputs), like PyTorch's default.
/// They are the same on every machine.
pub(crate) fn initial(layers: &[Layer], prg: &mut Prg) -> Vec<f32> {
    let mut out = Vec::new();
    for layer in layers {
        let bound = 1.0 / (layer.inputs() as f32).sqrt();
        let mut draw = || (prg.next_u64() >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        out.extend((0..layer.params()).map(|_| draw() * bound));
    }
    out
}

#[cfg(test)]
mod tests {
    use undertone_kdf::Seed;

    use super::*;

    const DIGITS: Kind = Kind::Conv {
        side: 8,
        classes: 10,
    };

    #[test]
    fn digits_have_13706_parameters() {
        assert_eq!(DIGITS.params(), 13_706);
        assert_eq!(DIGITS.dim(), 64);
        let shapes: Vec<_> = DIGITS.layers().iter().map(Layer::shape).collect();
        let conv: [&[usize]; 2] = [&[16, 1, 3, 3], &[32, 16, 3, 3]];
        assert_eq!(shapes[..2], conv);
        let linear: [&[usize]; 2] = [&[64, 128], &[10, 64]];
        assert_eq!(shapes[2..], linear);
    }

    #[test]
    fn orders_are_inverse() {
        for kind in [
            DIGITS,
            Kind::Mlp {
                features: 5,
                classes: 3,
            },
        ] {
            let layers = kind.layers();
            let outside: Vec<f32> = (0..kind.params()).map(|i| i as f32).collect();
            let inside = imported(&layers, &outside);
            assert_ne!(inside, outside);
            assert_eq!(exported(&layers, &inside), outside);
        }
    }

    #[test]
    fn initial_weights_fill_their_range() {
        let layers = DIGITS.layers();
        let params = initial(&layers, &mut Seed::from_bytes([1; 32]).prg());
        assert_eq!(params.len(), 13_706);
        let first = &params[..160];
        assert!(first.iter().all(|weight| weight.abs() <= 1.0 / 3.0));
        assert!(first.iter().any(|weight| *weight > 0.3));
        assert!(first.iter().any(|weight| *weight < -0.3));
        // The same bits on every machine.
        assert_eq!(params[0].to_bits(), 1_043_763_296);
    }

    #[test]
    fn sizes_have_bounds() {
        let conv = |side, classes| Kind::Conv { side, classes }.check();
        let mlp = |features, classes| Kind::Mlp { features, classes }.check();
        assert!(conv(8, 10).is_ok() && conv(1, 1).is_ok() && mlp(1, 1).is_ok());
        for refused in [conv(0, 10), conv(8, 0), conv(usize::MAX, 2), conv(2000, 2)] {
            assert!(refused.is_err());
        }
        for refused in [
            mlp(0, 10),
            mlp(8, 0),
            mlp(usize::MAX, 2),
            mlp(2, usize::MAX),
        ] {
            assert!(refused.is_err());
        }
    }
}
