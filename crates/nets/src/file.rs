//! Networks in files of the format safetensors.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use undertone_train::{Model, ModelError};

use crate::Net;
use crate::kind::{Kind, Layer, MAX_PARAMS};

/// The most bytes of a file: student, teacher, header.
const MAX_BYTES: u64 = 2 * 4 * MAX_PARAMS as u64 + (1 << 16);
/// What precedes the names of the teacher's tensors.
const TEACHER: &str = "teacher.";

/// Why a file cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system refuses.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// The file holds no network, or a damaged one.
    #[error("{0}: {1}")]
    Format(String, String),
}

impl Net {
    /// Saves the network as safetensors, replacing the file in one step.
    ///
    /// Tensors have PyTorch's shapes and names such as `conv1.weight` and `fc1.bias`; `teacher.`
    /// precedes those of a mean teacher. The metadata are `kind` (`conv` or `mlp`), `side` or
    /// `features`, and `classes`.
    ///
    /// # Errors
    /// [`FileError::Io`] when the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let name = || path.display().to_string();
        let bytes = self
            .to_bytes()
            .map_err(|error| FileError::Format(name(), error.0))?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        fs::write(&partial, bytes)
            .and_then(|()| fs::rename(&partial, path))
            .map_err(|error| FileError::Io(name(), error))
    }

    /// Loads a network that [`save`](Self::save) wrote, or a file like it. It has a mean teacher if
    /// the file has one.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read, is larger than any network, or lacks a tensor or
    /// metadata; when it has a tensor too many, one of another shape or type, or a value that is
    /// not finite.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| FileError::Io(name(), error))?;
        Self::from_bytes(&bytes).map_err(|error| FileError::Format(name(), error.0))
    }

    /// The bytes of a file: see [`save`](Self::save).
    ///
    /// # Errors
    /// [`ModelError`] when the format cannot hold the network. No network is known to cause this.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ModelError> {
        let data: Vec<u8> = self.params().iter().flat_map(|p| p.to_le_bytes()).collect();
        let mut rest = &data[..];
        let mut tensors = Vec::new();
        for (name, shape) in names(self.layers(), self.has_teacher()) {
            let count: usize = shape.iter().product();
            let (own, after) = rest.split_at(4 * count);
            let view = TensorView::new(Dtype::F32, shape, own).map_err(format)?;
            tensors.push((name, view));
            rest = after;
        }
        let (kind, size, value) = match self.kind() {
            Kind::Conv { side, .. } => ("conv", "side", side),
            Kind::Mlp { features, .. } => ("mlp", "features", features),
        };
        let metadata = HashMap::from([
            ("kind".into(), kind.into()),
            (size.into(), value.to_string()),
            ("classes".into(), self.kind().classes().to_string()),
        ]);
        safetensors::serialize(tensors, Some(metadata)).map_err(format)
    }

    /// The network in the bytes of a file: see [`load`](Self::load).
    ///
    /// # Errors
    /// [`ModelError`] when they are no network.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(ModelError(format!("more than {MAX_BYTES} bytes")));
        }
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(format)?;
        let kind = kind_of(header.metadata().as_ref())?;
        kind.check()?;
        let file = SafeTensors::deserialize(bytes).map_err(format)?;
        let has_teacher = file.names().iter().any(|name| name.starts_with(TEACHER));
        let expected = names(&kind.layers(), has_teacher);
        if file.len() != expected.len() {
            return Err(ModelError(format!(
                "{} tensors: {kind:?} has {}",
                file.len(),
                expected.len()
            )));
        }
        let mut params = Vec::with_capacity(2 * kind.params());
        for (name, shape) in expected {
            let tensor = file
                .tensor(&name)
                .map_err(|_| ModelError(format!("no tensor {name}")))?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
                return Err(ModelError(format!(
                    "tensor {name}: {:?} {:?}, expected F32 {shape:?}",
                    tensor.dtype(),
                    tensor.shape()
                )));
            }
            for bytes in tensor.data().as_chunks::<4>().0 {
                let value = f32::from_le_bytes(*bytes);
                if !value.is_finite() {
                    return Err(ModelError(format!(
                        "tensor {name}: a value is not a finite number"
                    )));
                }
                params.push(value);
            }
        }
        let (student, teacher) = params.split_at(kind.params());
        Self::assemble(kind, student, has_teacher.then_some(teacher))
    }
}

/// Names and shapes of all tensors, in the order of the parameters.
fn names(layers: &[Layer], has_teacher: bool) -> Vec<(String, Vec<usize>)> {
    let mut out = Vec::new();
    for prefix in ["", TEACHER].iter().take(1 + usize::from(has_teacher)) {
        for layer in layers {
            out.push((format!("{prefix}{}.weight", layer.name), layer.shape()));
            out.push((format!("{prefix}{}.bias", layer.name), vec![layer.outputs]));
        }
    }
    out
}

fn kind_of(metadata: Option<&HashMap<String, String>>) -> Result<Kind, ModelError> {
    let text = |key: &str| {
        metadata
            .and_then(|metadata| metadata.get(key))
            .ok_or_else(|| ModelError(format!("no metadata {key:?}")))
    };
    let number = |key: &str| {
        let text = text(key)?;
        text.parse()
            .map_err(|_| ModelError(format!("metadata {key:?}: {text:?} is not a size")))
    };
    let classes = number("classes")?;
    match text("kind")?.as_str() {
        "conv" => Ok(Kind::Conv {
            side: number("side")?,
            classes,
        }),
        "mlp" => Ok(Kind::Mlp {
            features: number("features")?,
            classes,
        }),
        other => Err(ModelError(format!(
            "metadata \"kind\": {other:?} is neither conv nor mlp"
        ))),
    }
}

fn format(error: impl std::fmt::Display) -> ModelError {
    ModelError(format!("safetensors: {error}"))
}

#[cfg(test)]
mod tests {
    use undertone_kdf::Seed;

    use super::*;

    fn nets() -> [Net; 4] {
        let seed = Seed::from_bytes([1; 32]);
        let (conv, mlp) = (
            Net::conv(5, 3, &seed).unwrap(),
            Net::mlp(7, 3, &seed).unwrap(),
        );
        [
            conv.clone(),
            mlp.clone(),
            conv.with_teacher(),
            mlp.with_teacher(),
        ]
    }

    #[test]
    fn files_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.safetensors");
        for mut net in nets() {
            // So that the teacher differs from the student.
            let params: Vec<f32> = (0..net.params().len()).map(|i| i as f32).collect();
            net.set_params(&params).unwrap();
            net.save(&path).unwrap();
            let loaded = Net::load(&path).unwrap();
            assert_eq!(loaded.params(), params);
            assert_eq!(loaded.kind(), net.kind());
            assert_eq!(loaded.has_teacher(), net.has_teacher());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        let missing = Net::load(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, FileError::Io(..)));
        assert!(missing.to_string().contains("none: "));
        fs::write(&path, b"no network").unwrap();
        let damaged = Net::load(&path).unwrap_err();
        assert!(matches!(damaged, FileError::Format(..)));
        assert!(
            damaged
                .to_string()
                .contains("net.safetensors: safetensors: ")
        );
    }

    /// The file of a network after `change` of its header's text.
    fn with_header(net: &Net, change: impl Fn(&str) -> String) -> Vec<u8> {
        let bytes = net.to_bytes().unwrap();
        let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header = change(std::str::from_utf8(header).unwrap());
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(data);
        out
    }

    #[test]
    fn bad_files_are_refused() {
        let [conv, mlp, taught, _] = nets();
        let replaced = |net: &Net, from: &str, to: &str| {
            let bytes = with_header(net, |header| {
                assert!(header.contains(from), "{from} in {header}");
                header.replace(from, to)
            });
            Net::from_bytes(&bytes).unwrap_err().0
        };
        for (net, from, to, reason) in [
            (&conv, "\"kind\"", "\"sort\"", "no metadata \"kind\""),
            (
                &conv,
                "\"conv\"",
                "\"vit\"",
                "\"vit\" is neither conv nor mlp",
            ),
            (&conv, "\"conv\"", "\"mlp\"", "no metadata \"features\""),
            (
                &conv,
                "\"side\":\"5\"",
                "\"side\":\"x\"",
                "\"x\" is not a size",
            ),
            (&conv, "\"side\":\"5\"", "\"side\":\"0\"", "sizes must be"),
            (
                &conv,
                "\"side\":\"5\"",
                "\"side\":\"99999\"",
                "sizes must be",
            ),
            (
                &conv,
                "\"side\":\"5\"",
                "\"side\":\"9\"",
                "tensor fc1.weight: F32 [64, 128]",
            ),
            (
                &mlp,
                "\"classes\":\"3\"",
                "\"classes\":\"4\"",
                "expected F32 [4, 64]",
            ),
            (
                &mlp,
                "\"F32\",\"shape\":[3,",
                "\"I32\",\"shape\":[3,",
                "fc3.weight: I32",
            ),
            (&mlp, "fc3.bias", "fc4.bias", "no tensor fc3.bias"),
            (&mlp, "\"fc3.bias", "\"teacher.bias", "6 tensors"),
            (
                &taught,
                "\"teacher.fc2.bias",
                "\"fc2x.bias",
                "no tensor teacher.fc2.bias",
            ),
            (
                &mlp,
                "\"data_offsets\":[0,",
                "\"data_offsets\":[4,",
                "safetensors: ",
            ),
        ] {
            let error = replaced(net, from, to);
            assert!(error.contains(reason), "{to}: {error}");
        }

        let bytes = mlp.to_bytes().unwrap();
        for cut in [0, 7, 100, bytes.len() - 1] {
            assert!(Net::from_bytes(&bytes[..cut]).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Net::from_bytes(&longer).is_err());
        for value in [f32::NAN, f32::INFINITY] {
            let mut broken = bytes.clone();
            let last = broken.last_chunk_mut::<4>().unwrap();
            *last = value.to_le_bytes();
            let error = Net::from_bytes(&broken).unwrap_err().0;
            assert!(error.ends_with("not a finite number"), "{error}");
        }
    }
}
