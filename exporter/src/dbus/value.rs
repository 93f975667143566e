//! D-Bus' encoding of values: each aligned to its size, lists after their length.

/// A value. Types that need no distinction here share a variant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BusValue {
    /// A byte, an integer or a boolean; negative numbers and fractions as their bits.
    Number(u64),
    /// A string, an object path or a signature.
    Text(String),
    /// An array, a struct or a dictionary entry.
    List(Vec<BusValue>),
}

impl BusValue {
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(values) => values,
            _ => &[],
        }
    }
}

#[derive(Default)]
pub(super) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn pad(&mut self, size: usize) {
        let padded = self.bytes.len().next_multiple_of(size);
        self.bytes.resize(padded, 0);
    }

    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// A length or number below 2³².
    pub fn word(&mut self, number: usize) {
        self.pad(4);
        let number = u32::try_from(number).unwrap_or_default();
        self.bytes.extend(number.to_ne_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.word(text.len());
        self.bytes.extend(text.as_bytes());
        self.byte(0);
    }

    pub fn signature(&mut self, signature: &str) {
        self.byte(u8::try_from(signature.len()).unwrap_or_default());
        self.bytes.extend(signature.as_bytes());
        self.byte(0);
    }

    /// Begins a header field: its number, and the type of its value.
    pub fn field(&mut self, number: u8, kind: char) {
        self.pad(8);
        self.byte(number);
        self.signature(kind.encode_utf8(&mut [0; 4]));
    }
}

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Nesting depth of the value being read.
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Deepest nesting that D-Bus allows.
    const MAX_DEPTH: usize = 64;

    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            depth: 0,
        }
    }

    /// Reads values of the types of a signature; `None` where the bytes do not match.
    pub fn values(&mut self, mut signature: &str) -> Option<Vec<BusValue>> {
        let mut values = Vec::new();
        while !signature.is_empty() {
            let (first, rest) = signature.split_at_checked(length_of_type(signature)?)?;
            values.push(self.value(first)?);
            signature = rest;
        }
        Some(values)
    }

    fn value(&mut self, signature: &str) -> Option<BusValue> {
        // Variants can hold variants, and each level takes stack.
        self.depth += 1;
        if self.depth > Self::MAX_DEPTH {
            return None;
        }

        let value = match signature.as_bytes().first()? {
            b'y' => BusValue::Number(self.number(1)?),
            b'n' | b'q' => BusValue::Number(self.number(2)?),
            b'b' | b'i' | b'u' | b'h' => BusValue::Number(self.number(4)?),
            b'x' | b't' | b'd' => BusValue::Number(self.number(8)?),
            b's' | b'o' => {
                let length = usize::try_from(self.number(4)?).ok()?;
                BusValue::Text(self.text(length)?)
            }
            b'g' => {
                let length = usize::try_from(self.number(1)?).ok()?;
                BusValue::Text(self.text(length)?)
            }
            // A variant says itself of which type its value is.
            b'v' => {
                let length = usize::try_from(self.number(1)?).ok()?;
                let signature = self.text(length)?;
                self.value(&signature)?
            }
            b'a' => BusValue::List(self.array(signature.get(1..)?)?),
            b'(' | b'{' => {
                self.align(8);
                BusValue::List(self.values(signature.get(1..signature.len() - 1)?)?)
            }
            _ => return None,
        };

        self.depth -= 1;
        Some(value)
    }

    fn array(&mut self, signature: &str) -> Option<Vec<BusValue>> {
        let length = usize::try_from(self.number(4)?).ok()?;
        // The length does not count the bytes that align the first value.
        self.align(alignment(signature)?);
        let end = self.at.checked_add(length)?;
        if end > self.bytes.len() {
            return None;
        }

        let mut values = Vec::new();
        while self.at < end {
            let before = self.at;
            values.push(self.value(signature)?);

            // An empty struct would be there without end.
            if self.at == before {
                return None;
            }
        }

        Some(values)
    }

    fn align(&mut self, size: usize) {
        self.at = self.at.next_multiple_of(size);
    }

    /// An integer of this many bytes, in this machine's byte order.
    fn number(&mut self, size: usize) -> Option<u64> {
        self.align(size);
        let bytes = self.bytes.get(self.at..self.at.checked_add(size)?)?;
        self.at += size;

        Some(match size {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(*bytes.first_chunk()?)),
            4 => u64::from(u32::from_ne_bytes(*bytes.first_chunk()?)),
            _ => u64::from_ne_bytes(*bytes.first_chunk()?),
        })
    }

    /// This many bytes, and the zero after them.
    fn text(&mut self, length: usize) -> Option<String> {
        let end = self.at.checked_add(length)?;
        let text = String::from_utf8_lossy(self.bytes.get(self.at..end)?).into_owned();
        self.at = end.checked_add(1)?;
        Some(text)
    }
}

fn alignment(signature: &str) -> Option<usize> {
    Some(match signature.as_bytes().first()? {
        b'y' | b'g' | b'v' => 1,
        b'n' | b'q' => 2,
        b'x' | b't' | b'd' | b'(' | b'{' => 8,
        _ => 4,
    })
}

/// Length of the first type in a signature.
fn length_of_type(signature: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, c) in signature.bytes().enumerate() {
        match c {
            b'(' | b'{' => open += 1,
            b')' | b'}' => open = open.checked_sub(1)?,
            // An array's type ends with the type of its elements.
            b'a' => continue,
            _ => {}
        }
        if open == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_within_types() {
        assert_eq!(
            ["s", "a(ssso)u", "a{sv}", "aay"].map(length_of_type),
            [Some(1), Some(7), Some(5), Some(3)]
        );
        assert_eq!(["a", "(s", ")"].map(length_of_type), [None; 3]);
        // A list of two structs of a byte and a variant.
        let bytes = [
            24, 0, 0, 0, 0, 0, 0, 0, 5, 1, b'u', 0, 9, 0, 0, 0, 6, 1, b's', 0, 3, 0, 0, 0, b'a',
            b'b', b'c', 0, 0, 0, 0, 0,
        ];
        let values = Reader::new(&bytes[..28 + 4]).values("a(yv)");
        let expected = [
            vec![BusValue::Number(5), BusValue::Number(9)],
            vec![BusValue::Number(6), BusValue::Text("abc".into())],
        ];
        assert_eq!(values, None, "the list ends within a struct");
        let bytes = [&[20, 0, 0, 0], &bytes[4..28]].concat();
        assert_eq!(
            Reader::new(&bytes).values("a(yv)"),
            Some(vec![BusValue::List(expected.map(BusValue::List).to_vec())])
        );
    }

    proptest! {
        #[test]
        fn no_bytes_end_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200), signature in "[ybnqiuxtdsogva(){}]{0,12}") {
            let _ = Reader::new(&bytes).values(&signature);
        }

        #[test]
        fn nor_do_variants_in_variants(count in 0_usize..400) {
            let bytes = [1, b'v', 0].repeat(count);
            let _ = Reader::new(&bytes).values("v");
        }
    }
}
