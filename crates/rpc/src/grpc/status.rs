//! How a call ended: our errors as gRPC trailers, and back.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderValue, StatusCode};
use prost::Message;
use proto::distributed_runtime::GrpcPayloadContainer;
use tensor::{Code, Error, Result, unavailable};

const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";
/// Despite its name not a `google.rpc.Status`: see `payloads.proto`.
const GRPC_DETAILS: &str = "grpc-status-details-bin";

/// The payload that marks an error which merely follows from another one.
const DERIVED: &str = "type.googleapis.com/tensorflow.DerivedStatus";
/// How the 1.15 generation marks the same, at the front of the sentence.
const DERIVED_PREFIX: &str = "[_Derived_]";

/// Headers are bounded on the way, so a sentence is cut here.
const MESSAGE_MAX: usize = 3072;
const TRUNCATED: &str = " ... [truncated]";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The trailers of a call that went well.
pub fn ok() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static(GRPC_STATUS), HeaderValue::from_static("0"))])
}

/// The trailers of a call that failed.
pub fn trailers(error: &Error) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(GRPC_STATUS, HeaderValue::from(error.code as i32));
    if let Ok(value) = HeaderValue::from_str(&percent_encode(&truncate(&error.message))) {
        headers.insert(GRPC_MESSAGE, value);
    }
    if error.derived {
        let payloads = [(DERIVED.to_string(), bytes::Bytes::new())].into();
        let details = BASE64.encode(GrpcPayloadContainer { payloads }.encode_to_vec());
        if let Ok(value) = HeaderValue::from_str(&details) {
            headers.insert(GRPC_DETAILS, value);
        }
    }
    headers
}

/// What these headers or trailers say about the call; `None` if they do not say.
pub fn read(headers: &HeaderMap) -> Option<Result<()>> {
    let status = headers.get(GRPC_STATUS)?.to_str().ok().and_then(|text| text.parse().ok());
    let Some(code) = Code::from_i32(status.unwrap_or(Code::Unknown as i32)) else { return Some(Ok(())) };
    let message = headers.get(GRPC_MESSAGE).map_or(String::new(), |value| percent_decode(value.as_bytes()));
    let mut error = Error::new(code, message);
    error.derived = headers.get(GRPC_DETAILS).is_some_and(is_derived);
    if let Some(rest) = error.message.strip_prefix(DERIVED_PREFIX) {
        error.message = rest.to_string();
        error.derived = true;
    }
    Some(Err(error))
}

fn is_derived(details: &HeaderValue) -> bool {
    let bytes = BASE64.decode(details.as_bytes()).unwrap_or_default();
    GrpcPayloadContainer::decode(bytes.as_slice()).is_ok_and(|container| container.payloads.contains_key(DERIVED))
}

/// What an HTTP status without a gRPC one means.
pub fn from_http(status: StatusCode) -> Error {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Error::new(code, format!("the peer answered with HTTP status {status} instead of a gRPC answer"))
}

/// What an error of the connection, or of one stream on it, means for a call.
pub fn from_h2(error: &h2::Error) -> Error {
    use h2::Reason;
    if let Some(io) = error.get_io() {
        return unavailable!("{io}");
    }
    // A reset concerns this call; whatever else it is, the connection has gone with it.
    let code = match error.reason() {
        _ if !error.is_reset() => Code::Unavailable,
        Some(Reason::REFUSED_STREAM) => Code::Unavailable,
        Some(Reason::CANCEL) => Code::Cancelled,
        Some(Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
        Some(Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
        _ => Code::Internal,
    };
    Error::new(code, error.to_string())
}

/// Cuts at a character's boundary.
fn truncate(message: &str) -> std::borrow::Cow<'_, str> {
    if message.len() <= MESSAGE_MAX {
        return message.into();
    }
    let end = (0..=MESSAGE_MAX).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
    format!("{}{TRUNCATED}", &message[..end]).into()
}

fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => out.push_str("%25"),
            b' '..=b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Reads what is encoded well and keeps the rest as it is: an error's text must not be lost to a wrong digit.
fn percent_decode(value: &[u8]) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        let hex = |byte: u8| (byte as char).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                out.push((hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0)) as u8);
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{aborted, cancelled, invalid};

    #[test]
    fn errors_survive_the_wire() {
        let cases = [
            invalid!("plain"),
            aborted!("lines\n\t [[{{{{node a}}}}]] 100% ünïcode \0"),
            cancelled!("follows").into_derived(),
            Error::new(Code::Unauthenticated, ""),
        ];
        for error in cases {
            assert_eq!(read(&trailers(&error)), Some(Err(error)));
        }
        assert_eq!(read(&ok()), Some(Ok(())));
        assert_eq!(read(&HeaderMap::new()), None);
    }

    #[test]
    fn a_long_sentence_is_cut_between_characters() {
        let error = invalid!("a{}", "é".repeat(3000));
        let Some(Err(read)) = read(&trailers(&error)) else { panic!("an error") };
        assert!(read.message.ends_with("é ... [truncated]"));
        assert_eq!(read.message.len(), 3071 + TRUNCATED.len());
    }

    #[test]
    fn marks_of_either_generation_are_understood() {
        let headers = |details: &str, message: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_STATUS, HeaderValue::from_static("1"));
            headers.insert(GRPC_MESSAGE, HeaderValue::from_str(message).unwrap());
            headers.insert(GRPC_DETAILS, HeaderValue::from_str(details).unwrap());
            read(&headers).unwrap().unwrap_err()
        };
        let container = GrpcPayloadContainer { payloads: [(DERIVED.to_string(), Default::default())].into() };
        let padded = base64::engine::general_purpose::STANDARD.encode(container.encode_to_vec());
        assert!(headers(&padded, "x").derived);
        assert!(!headers("not base64!", "x").derived);
        let old = headers("", "[_Derived_]gone");
        assert!(old.derived && old.message == "gone");
    }

    #[test]
    fn text_that_is_not_well_encoded_is_kept() {
        assert_eq!(percent_decode(b"100% %zz %4"), "100% %zz %4");
        assert_eq!(percent_decode(b"%C3%A9%41"), "éA");
    }
}
