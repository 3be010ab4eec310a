//! Brackets outside of strings, 64 bytes at a time: what makes stepping over many small things cheap.

/// Bytes looked at together.
pub(super) const BLOCK: usize = 64;

/// Up to 64 bytes that begin outside of a string.
pub(super) struct Block {
    bytes: [u8; BLOCK],
    /// The quotes that begin and end strings, a bit each.
    quotes: u64,
    /// The brackets outside of strings.
    brackets: u64,
}

/// Which brackets are open, the innermost in the lowest bit.
pub(super) struct Nesting {
    bits: u64,
    depth: usize,
    /// What is open outside of the innermost 64.
    outer: Vec<u64>,
}

// === impl Block ===

impl Block {
    /// The first 64 bytes of `text`; where it is shorter, blanks follow.
    pub(super) fn new(text: &[u8]) -> Self {
        let bytes = match text.first_chunk::<BLOCK>() {
            Some(bytes) => *bytes,
            None => {
                let mut bytes = [b' '; BLOCK];
                bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
                bytes
            }
        };
        if !any_special(&bytes) {
            return Self { bytes, quotes: 0, brackets: 0 };
        }
        let mut quotes = mask(&bytes, |byte| byte == b'"');
        if quotes != 0 {
            quotes &= !escaped(mask(&bytes, |byte| byte == b'\\'));
        }
        let brackets = mask(&bytes, is_bracket) & !inside(quotes);
        Self { bytes, quotes, brackets }
    }

    /// The brackets outside of strings, and where they are.
    pub(super) fn brackets(&self) -> impl Iterator<Item = (usize, u8)> {
        let mut left = self.brackets;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            let byte = *self.bytes.get(at)?;
            left &= left - 1;
            Some((at, byte))
        })
    }

    /// Behind the quote that begins a string which goes on after the block.
    pub(super) fn unfinished(&self) -> Option<usize> {
        (self.quotes.count_ones() % 2 == 1).then(|| BLOCK - self.quotes.leading_zeros() as usize)
    }
}

/// Whether there is a quote or a bracket. No early exit, so that this becomes a few vector instructions: which it only
/// does as a function of its own.
#[inline(never)]
fn any_special(bytes: &[u8; BLOCK]) -> bool {
    bytes.iter().fold(false, |any, byte| any | is_bracket(*byte) | (*byte == b'"'))
}

fn is_bracket(byte: u8) -> bool {
    (byte | 0x20 == b'{') | (byte | 0x20 == b'}')
}

/// A bit for every byte that `is`; on its own for the same reason.
#[inline(never)]
fn mask(bytes: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    let mut hits = [0u8; BLOCK];
    hits.iter_mut().zip(bytes).for_each(|(hit, byte)| *hit = u8::from(is(*byte)));
    let (words, _) = hits.as_chunks::<8>();
    words.iter().rev().fold(0, |mask, word| {
        // Gathers the lowest bits of eight bytes in the highest byte.
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        (mask << 8) | bits
    })
}

/// The bytes that follow a backslash which is not itself escaped.
fn escaped(backslashes: u64) -> u64 {
    let (mut left, mut escaped) = (backslashes, 0);
    while left != 0 {
        let first = left & left.wrapping_neg();
        escaped |= first << 1;
        left &= !(first | (first << 1));
    }
    escaped
}

/// The bytes from every opening quote up to its closing one.
fn inside(quotes: u64) -> u64 {
    [1, 2, 4, 8, 16, 32].iter().fold(quotes, |inside, shift| inside ^ (inside << shift))
}

// === impl Nesting ===

impl Nesting {
    /// Inside of one container that `close` will end.
    pub(super) fn new(close: u8) -> Self {
        Self { bits: u64::from(close == b'}'), depth: 1, outer: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// One bracket more; false where it does not pair.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let curly = u64::from(byte & 0x20 != 0);
        if matches!(byte, b'{' | b'[') {
            if self.depth.is_multiple_of(64) {
                self.outer.push(std::mem::take(&mut self.bits));
            }
            self.bits = (self.bits << 1) | curly;
            self.depth += 1;
            return true;
        }
        if self.bits & 1 != curly {
            return false;
        }
        self.bits >>= 1;
        self.depth -= 1;
        if self.depth.is_multiple_of(64) {
            self.bits = self.outer.pop().unwrap_or_default();
        }
        true
    }
}

#[cfg(test)]
mod tests;
