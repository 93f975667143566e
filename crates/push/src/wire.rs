//! Protobuf's wire format, read in place: no text is copied.

/// A message ends early, or has a field that protobuf does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the protobuf message is damaged")]
pub struct WireError;

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    #[inline]
    pub fn varint(self) -> Result<u64, WireError> {
        if let Self::Varint(number) = self {
            Ok(number)
        } else {
            Err(WireError)
        }
    }

    #[inline]
    pub fn double(self) -> Result<f64, WireError> {
        if let Self::Fixed64(bits) = self {
            Ok(f64::from_bits(bits))
        } else {
            Err(WireError)
        }
    }

    #[inline]
    pub fn bytes(self) -> Result<&'a [u8], WireError> {
        if let Self::Bytes(bytes) = self {
            Ok(bytes)
        } else {
            Err(WireError)
        }
    }
}

/// The fields of a message: number and value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Reads a number of at most ten bytes.
    #[inline]
    pub fn take_varint(&mut self) -> Result<u64, WireError> {
        match self.0 {
            // Nearly all keys and lengths.
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.take_long_varint(),
        }
    }

    fn take_long_varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for (at, &byte) in self.0.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                // The tenth byte has one bit of the number.
                if at == 9 && byte > 1 {
                    return Err(WireError);
                }
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(WireError)
    }

    /// Skips the fields at the front that have the key `key` and fewer than 128 bytes.
    #[inline]
    pub fn skip_short(&mut self, key: u8) {
        while let [first, length, rest @ ..] = self.0
            && *first == key
            && *length < 0x80
            && let Some(rest) = rest.get(usize::from(*length)..)
        {
            self.0 = rest;
        }
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn take_field(&mut self) -> Result<(u64, Field<'a>), WireError> {
        let key = self.take_varint()?;
        let field = match key & 7 {
            0 => Field::Varint(self.take_varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| WireError)?;
                Field::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.take_varint()?).map_err(|_| WireError)?;
                Field::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Field::Fixed32
            }
            // Groups (3 and 4) are obsolete; the other numbers do not exist.
            _ => return Err(WireError),
        };

        // Protobuf has no field 0.
        if key >> 3 == 0 {
            return Err(WireError);
        }
        Ok((key >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.take_field();
        // The iterator ends with its error, or a caller that skips errors would not end.
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Keys of fields: numbers 1 and 2, as bytes, as eight bytes, or as a number.
pub(crate) const BYTES_1: u8 = 0x0a;
pub(crate) const BYTES_2: u8 = 0x12;
pub(crate) const DOUBLE_1: u8 = 0x09;
pub(crate) const VARINT_2: u8 = 0x10;

/// Appends a number.
pub(crate) fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
