//! The networks and their loss as graphs of candle, which differentiates them.

use candle_core::{D, Device, Result, Shape, Tensor, Var};

use crate::kind::{CHANNELS, Kind, Layer, TAPS, halved};

/// A network without its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    kind: Kind,
    /// For each position after the second convolution and each tap of its patch: the position
    /// before it, or [`PADDING`].
    patches: Option<Tensor>,
}

/// What a network computes for some rows.
pub(crate) struct Outputs {
    /// `[rows, 64]`, before the ReLU.
    pub(crate) embeddings: Tensor,
    /// `[rows, classes]`
    pub(crate) logits: Tensor,
}

impl Graph {
    pub(crate) fn new(kind: Kind) -> Result<Self> {
        let patches = match kind {
            Kind::Conv { side, .. } => Some(Tensor::new(positions(halved(side)), &Device::Cpu)?),
            Kind::Mlp { .. } => None,
        };
        Ok(Self { kind, patches })
    }

    /// The outputs for `rows` rows. `inputs` are those of the first layer; `weights` has weights
    /// and bias of each layer.
    pub(crate) fn outputs(
        &self,
        weights: &[Tensor],
        inputs: &Tensor,
        rows: usize,
    ) -> Result<Outputs> {
        let linear = |layer: usize, x: &Tensor| -> Result<Tensor> {
            x.matmul(&weights[2 * layer])?
                .broadcast_add(&weights[2 * layer + 1])
        };
        let mut x = linear(0, inputs)?.relu()?;
        let mut next = 1;
        if let Some(patches) = &self.patches {
            // A product of patches and weights is three times as fast as candle's convolution.
            x = x.reshape((rows, (), CHANNELS[0]))?;
            x = x.index_select(patches, 1)?;
            x = linear(1, &x.reshape(((), TAPS * CHANNELS[0]))?)?.relu()?;
            x = x.reshape((rows, ()))?;
            next = 2;
        }
        let embeddings = linear(next, &x)?;
        let logits = linear(next + 1, &embeddings.relu()?)?;
        Ok(Outputs { embeddings, logits })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The tensors of `params`, which are in the order inside. Gradients reach them if `trained`.
    pub(crate) fn tensors(layers: &[Layer], params: &[f32], trained: bool) -> Result<Vec<Tensor>> {
        let cpu = &Device::Cpu;
        let tensor = |values: &[f32], shape: Shape| {
            if trained {
                Var::from_slice(values, shape, cpu).map(Var::into_inner)
            } else {
                Tensor::from_slice(values, shape, cpu)
            }
        };
        let mut rest = params;
        let mut out = Vec::with_capacity(2 * layers.len());
        for layer in layers {
            let (weights, after) = rest.split_at(layer.weights());
            let (bias, after) = after.split_at(layer.outputs);
            out.push(tensor(weights, (layer.inputs(), layer.outputs).into())?);
            out.push(tensor(bias, layer.outputs.into())?);
            rest = after;
        }
        Ok(out)
    }
}

/// The index for which `index_select` gives zeros, and which passes no gradient on.
const PADDING: u32 = u32::MAX;

/// The positions of all 3×3 patches, with stride 2, of a square.
fn positions(side: usize) -> Vec<u32> {
    let half = halved(side);
    let mut out = Vec::with_capacity(half * half * TAPS);
    for (y, x) in (0..half).flat_map(|y| (0..half).map(move |x| (y, x))) {
        for tap in 0..TAPS {
            // One more than the coordinate, so that the padding before the first is 0.
            let (y, x) = (2 * y + tap / 3, 2 * x + tap % 3);
            let inside = |at: usize| (1..=side).contains(&at);
            let position = if inside(y) && inside(x) {
                ((y - 1) * side + x - 1) as u32
            } else {
                PADDING
            };
            out.push(position);
        }
    }
    out
}

/// The logarithm of each class's probability.
pub(crate) fn log_softmax(logits: &Tensor) -> Result<Tensor> {
    let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
    let sum = shifted.exp()?.sum_keepdim(D::Minus1)?;
    shifted.broadcast_sub(&sum.log()?)
}

/// What a batch is trained towards.
pub(crate) struct Goal {
    /// `[rows, classes]`: at each row's class its weight divided by the number of rows; elsewhere
    /// 0.
    pub(crate) targets: Tensor,
    /// The teacher's probabilities, `[rows, classes]`, and the weight of the consistency loss.
    pub(crate) teacher: Option<(Tensor, f64)>,
}

impl Goal {
    /// The loss of a batch.
    pub(crate) fn loss(&self, logits: &Tensor) -> Result<Tensor> {
        let log = log_softmax(logits)?;
        let loss = (&log * &self.targets)?.sum_all()?.neg()?;
        let Some((teacher, weight)) = &self.teacher else {
            return Ok(loss);
        };
        let difference = (log.exp()? - teacher)?.sqr()?.mean_all()?;
        loss + (difference * *weight)?
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;
    use undertone_kdf::Seed;
    use undertone_kernel::Prg;

    use super::*;
    use crate::kind::initial;

    #[test]
    fn patches_of_a_square() {
        const P: u32 = PADDING;
        assert_eq!(positions(1), [P, P, P, P, 0, P, P, P, P]);
        assert_eq!(positions(4)[..9], [P, P, P, P, 0, 1, P, 4, 5]);
        assert_eq!(positions(4)[27..], [5, 6, 7, 9, 10, 11, 13, 14, 15]);
        assert_eq!(positions(3).len(), 4 * TAPS);
    }

    fn uniform(prg: &mut Prg, shape: &[usize]) -> Tensor {
        let count = shape.iter().product();
        let values: Vec<f64> = (0..count)
            .map(|_| prg.next_u64() as f64 / u64::MAX as f64)
            .collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    /// Compares the gradient with finite differences, both in `f64`.
    fn check(kind: Kind, first: [usize; 2]) {
        const ROWS: usize = 4;
        const STEP: f64 = 1e-6;
        let (layers, graph) = (kind.layers(), Graph::new(kind).unwrap());
        let mut prg = Seed::from_bytes([4; 32]).prg();
        let params = initial(&layers, &mut prg);
        let weights: Vec<Var> = Graph::tensors(&layers, &params, false)
            .unwrap()
            .iter()
            .map(|tensor| Var::from_tensor(&tensor.to_dtype(DType::F64).unwrap()).unwrap())
            .collect();
        let inputs = uniform(&mut prg, &[ROWS * first[0], first[1]]);
        let shape = [ROWS, kind.classes()];
        let teacher = log_softmax(&uniform(&mut prg, &shape))
            .unwrap()
            .exp()
            .unwrap();
        let goal = Goal {
            targets: uniform(&mut prg, &shape),
            teacher: Some((teacher, 20.0)),
        };
        let loss = |weights: &[Tensor]| {
            let outputs = graph.outputs(weights, &inputs, ROWS).unwrap();
            goal.loss(&outputs.logits).unwrap()
        };
        let tensors: Vec<Tensor> = weights.iter().map(|var| var.as_tensor().clone()).collect();
        let gradient = loss(&tensors).backward().unwrap();
        for (index, var) in weights.iter().enumerate() {
            let own = gradient.get(var).unwrap().flatten_all().unwrap();
            let own = own.to_vec1::<f64>().unwrap();
            let values = var.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            for at in (0..values.len()).step_by(values.len().div_ceil(40)) {
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values[at] += by;
                    let mut tensors = tensors.clone();
                    tensors[index] = Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap();
                    loss(&tensors).to_scalar::<f64>().unwrap()
                };
                let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                let close = (slope - own[at]).abs() < 1e-6 + 1e-5 * slope.abs();
                assert!(close, "{index} {at}: {slope} {}", own[at]);
            }
        }
    }

    #[test]
    fn gradients_are_slopes() {
        for side in [8, 5] {
            check(
                Kind::Conv { side, classes: 10 },
                [halved(side).pow(2), TAPS],
            );
        }
        let features = 7;
        check(
            Kind::Mlp {
                features,
                classes: 3,
            },
            [1, features],
        );
    }

    /// The product of patches is the convolution that candle computes from PyTorch's parameters.
    #[test]
    fn patches_give_the_convolution() {
        use crate::augment;
        use crate::kind::imported;
        use undertone_train::Rows;

        for side in [8, 7] {
            let kind = Kind::Conv { side, classes: 10 };
            let layers = kind.layers();
            let mut prg = Seed::from_bytes([5; 32]).prg();
            let params = initial(&layers, &mut prg);
            let images = uniform(&mut prg, &[3, 1, side, side]);
            let images = images.to_dtype(DType::F32).unwrap();

            let mut rest = &params[..];
            let mut x = images.clone();
            for layer in &layers {
                let (own, after) = rest.split_at(layer.params());
                let (weights, bias) = own.split_at(layer.weights());
                let weights = Tensor::from_slice(weights, layer.shape(), &Device::Cpu).unwrap();
                let bias = Tensor::from_slice(bias, layer.outputs, &Device::Cpu).unwrap();
                x = if layer.name.starts_with("conv") {
                    let bias = bias.reshape((1, (), 1, 1)).unwrap();
                    let x = x.conv2d(&weights, 1, 2, 1, 1).unwrap();
                    x.broadcast_add(&bias).unwrap().relu().unwrap()
                } else {
                    let x = x.flatten_from(1).unwrap();
                    let x = x.matmul(&weights.t().unwrap()).unwrap();
                    let x = x.broadcast_add(&bias).unwrap();
                    if layer.name == "fc1" {
                        x.relu().unwrap()
                    } else {
                        x
                    }
                };
                rest = after;
            }

            let values = images.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let rows = Rows {
                dim: side * side,
                values: &values,
            };
            let inputs = augment::inputs(kind, rows, 0..3, None);
            let inputs = Tensor::from_vec(inputs, (3 * halved(side).pow(2), TAPS), &Device::Cpu);
            let weights = Graph::tensors(&layers, &imported(&layers, &params), false).unwrap();
            let graph = Graph::new(kind).unwrap();
            let logits = graph.outputs(&weights, &inputs.unwrap(), 3).unwrap().logits;
            let worst = (logits - x).unwrap().abs().unwrap().max_all().unwrap();
            assert!(worst.to_scalar::<f32>().unwrap() < 1e-5);
        }
    }
}
