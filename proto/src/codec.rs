//! Prost over gRPC with small buffers.
//!
//! A buffer lives as long as its call, and a watch lasts for half an hour and mostly waits: with tonic's own 8 KiB each way a
//! thousand of them hold 16 MiB for nothing. The buffers grow with what passes through.

use std::marker::PhantomData;

use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// What a buffer has room for at first, and grows by at the least, in bytes.
const BUFFER: usize = 1024;
/// From how many bytes on messages that are ready are no longer put together, as tonic has it.
const YIELD: usize = 32 * 1024;

/// The codec of all generated clients and servers: encodes `T`, decodes `U`.
#[derive(Debug)]
pub struct SmallProst<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallProst<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallProst<T, U>
where
    T: prost::Message + Send + 'static,
    U: prost::Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER, YIELD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER, YIELD))
    }
}
