//! How values of jobs and terms are written: modules for `serde(with)`.

/// `serde(with)`: a choice as the text that it prints as. A whole number is read as text.
pub mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    /// Reads it.
    ///
    /// # Errors
    /// The text is none of the choices.
    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<T, D::Error> {
        d.deserialize_any(Text(PhantomData))
    }

    struct Text<T>(PhantomData<T>);

    impl<T: FromStr<Err: Display>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }
}

/// `serde(with)`: a number that is 0 or more, or the text `inf`.
pub mod limit {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    const NONE: &str = "inf";

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(limit: &f64, s: S) -> Result<S::Ok, S::Error> {
        if limit.is_finite() {
            s.serialize_f64(*limit)
        } else {
            s.serialize_str(NONE)
        }
    }

    struct Limit;

    impl Limit {
        fn of<E: Error>(self, limit: f64) -> Result<f64, E> {
            if limit >= 0.0 {
                Ok(limit)
            } else {
                Err(E::invalid_value(serde::de::Unexpected::Float(limit), &self))
            }
        }
    }

    impl Visitor<'_> for Limit {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number that is 0 or more, or \"inf\"")
        }

        fn visit_f64<E: Error>(self, limit: f64) -> Result<f64, E> {
            self.of(limit)
        }

        fn visit_u64<E: Error>(self, limit: u64) -> Result<f64, E> {
            self.of(limit as f64)
        }

        fn visit_i64<E: Error>(self, limit: i64) -> Result<f64, E> {
            self.of(limit as f64)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
            if text == NONE {
                return Ok(f64::INFINITY);
            }
            Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        d.deserialize_any(Limit)
    }
}

/// `serde(with)`: a number above 0, or 0 for none.
pub mod count {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(count: &Option<usize>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(count.unwrap_or(0) as u64)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is no whole number.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
        let count = usize::deserialize(d)?;
        Ok(Some(count).filter(|count| *count > 0))
    }
}

/// `serde(with)`: 32 bytes as 64 hexadecimal digits.
pub mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// The hexadecimal digits of `bytes`.
    pub fn write(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The 32 bytes of 64 hexadecimal digits.
    pub fn read(text: &str) -> Option<[u8; 32]> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let digit = |d: u8| (d as char).to_digit(16);
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(bytes)
    }

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8; 32], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&write(bytes))
    }

    /// Reads it.
    ///
    /// # Errors
    /// There are not 64 digits.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<[u8; 32], D::Error> {
        read(&String::deserialize(d)?)
            .ok_or_else(|| D::Error::custom("must have 64 hexadecimal digits"))
    }
}

/// `serde(with)`: a choice of two as a truth value.
pub mod flag {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Copy + Into<bool>, S: Serializer>(
        value: &T,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_bool((*value).into())
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is no truth value.
    pub fn deserialize<'de, T: From<bool>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
        bool::deserialize(d).map(T::from)
    }
}

/// `serde(with)`: a single-precision number by its shortest decimal.
pub mod short {
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &f32, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(value.to_string().parse().map_err(S::Error::custom)?)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f32, D::Error> {
        f64::deserialize(d).map(|value| value as f32)
    }
}

/// `serde(with)`: a single-precision number, or the text `auto` for none.
pub mod automatic {
    use std::fmt;

    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserializer, Serializer};

    const NONE: &str = "auto";

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<f32>, s: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::short::serialize(value, s),
            None => s.serialize_str(NONE),
        }
    }

    struct Automatic;

    impl Visitor<'_> for Automatic {
        type Value = Option<f32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number, or \"auto\"")
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<Option<f32>, E> {
            Ok(Some(value as f32))
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<Option<f32>, E> {
            Ok(Some(value as f32))
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<Option<f32>, E> {
            Ok(Some(value as f32))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Option<f32>, E> {
            if text == NONE {
                return Ok(None);
            }
            Err(E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f32>, D::Error> {
        d.deserialize_any(Automatic)
    }
}

/// `serde(with)`: choices as a list of the texts that they print as. People may also write one
/// text, with commas.
pub mod list {
    use std::fmt::{self, Display};
    use std::marker::PhantomData;
    use std::str::FromStr;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    /// Writes them.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Display, S: Serializer>(values: &[T], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(values.iter().map(T::to_string))
    }

    struct List<T>(PhantomData<T>);

    impl<'de, T: FromStr<Err: Display>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of texts")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
            let parts = text.split(',').map(str::trim);
            parts.map(|part| part.parse().map_err(E::custom)).collect()
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(text) = texts.next_element::<String>()? {
                values.push(text.parse().map_err(A::Error::custom)?);
            }
            Ok(values)
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// One is none of the choices.
    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Vec<T>, D::Error> {
        d.deserialize_any(List(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use crate::settle::{entries, parse};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Forms {
        #[serde(with = "super::short")]
        rate: f32,
        #[serde(with = "super::automatic")]
        step: Option<f32>,
        #[serde(with = "super::list")]
        numbers: Vec<u8>,
    }

    #[test]
    fn what_is_written_is_read() {
        for step in [None, Some(0.1), Some(-3.0)] {
            let forms = Forms {
                rate: 2e-4,
                step,
                numbers: vec![1, 2],
            };
            let text = toml::to_string(&forms).unwrap();
            assert!(text.starts_with("rate = 0.0002\nstep = "), "{text}");
            assert_eq!(toml::from_str::<Forms>(&text).unwrap(), forms);
            assert_eq!(parse(&text).unwrap(), entries(&forms));
        }
        let read = |more: &str| toml::from_str::<Forms>(&format!("rate = 1.0\n{more}"));
        let forms = read("step = 1\nnumbers = \"3, 4\"").unwrap();
        assert_eq!((forms.step, &forms.numbers[..]), (Some(1.0), &[3, 4][..]));
        for wrong in [
            "step = \"none\"\nnumbers = []",
            "step = 1\nnumbers = [\"x\"]",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
