//! Bytes as a TensorProto: read, written, read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use tensor::Tensor;

fuzz_target!(|bytes: &[u8]| {
    fuzz::limit_memory();
    let Ok(message) = proto::TensorProto::decode(bytes) else { return };
    let Ok(read) = Tensor::from_proto(&message) else { return };
    let _ = format!("{read:?}");
    // A message of a few bytes may stand for many equal values; the copies below are the target's own, and must fit.
    if read.num_bytes() > 64 << 20 {
        return;
    }
    let written = read.to_proto().encode_to_vec();
    let message = proto::TensorProto::decode(&written[..]).expect("what we wrote is a message");
    let again = Tensor::from_proto(&message).expect("what we wrote is a tensor");
    assert_eq!(again.to_proto().encode_to_vec(), written);
    assert_eq!((again.dtype(), again.shape()), (read.dtype(), read.shape()));
});
