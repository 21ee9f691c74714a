//! Fetches the files of MNIST over plain HTTP.

use ferroflow::{Code, Error, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// A public copy of the files.
pub const SOURCE: &str = "http://storage.googleapis.com/cvdf-datasets/mnist";

const FILES: [&str; 4] = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
];

/// No file is larger.
const FILE_MAX: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Fetches what is not there yet.
pub fn fetch(source: &str, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    for name in FILES {
        let path = dir.join(name);
        if path.exists() || path.with_extension("").exists() {
            continue;
        }
        let url = format!("{}/{name}", source.trim_end_matches('/'));
        println!("fetching {url}");
        let body = get(&url).map_err(|e| {
            let advice = "without --download and --data_dir the digits that are compiled in are used";
            Error::new(Code::Unavailable, format!("{url} cannot be fetched: {}; {advice}", e.message))
        })?;
        // A file that is there is whole.
        let part = path.with_extension("part");
        std::fs::write(&part, body)?;
        std::fs::rename(part, path)?;
    }
    Ok(())
}

fn get(url: &str) -> Result<Vec<u8>> {
    let bad = |what: String| Error::new(Code::InvalidArgument, what);
    let rest = url.strip_prefix("http://").ok_or_else(|| bad("only http:// is understood".into()))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.contains(':') { host.to_string() } else { format!("{host}:80") };
    let mut stream = connect(&address)?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.by_ref().take(4096).read_line(&mut line)?;
    let status = line.trim().to_string();
    if status.split(' ').nth(1) != Some("200") {
        return Err(bad(format!("the server answered '{status}'")));
    }
    let length = read_headers(&mut answer)?;
    let mut body = Vec::new();
    answer.take(FILE_MAX).read_to_end(&mut body)?;
    if length.is_some_and(|length| length != body.len()) {
        return Err(bad(format!("the connection ended after {} of {} bytes", body.len(), length.unwrap_or(0))));
    }
    Ok(body)
}

fn connect(address: &str) -> Result<TcpStream> {
    let mut last = Error::new(Code::Unavailable, format!("{address} has no address"));
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(e) => last = Error::new(Code::Unavailable, format!("{address}: {e}")),
        }
    }
    Err(last)
}

/// Reads to the end of the headers; the length of the body, if one of them says it.
fn read_headers(answer: &mut impl BufRead) -> Result<Option<usize>> {
    let mut length = None;
    let mut headers = answer.take(64 << 10);
    loop {
        let mut line = String::new();
        if headers.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(length);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that gives this answer to each of so many questions.
    fn serve(answer: &'static str, count: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(count) {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        format!("http://{address}/mnist")
    }

    #[test]
    fn files_that_are_missing_are_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let source = serve("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 3);
        std::fs::write(folder.path().join("train-labels-idx1-ubyte"), "here already").unwrap();
        fetch(&source, folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join(FILES[0])).unwrap(), "hello");
        assert!(!folder.path().join(FILES[1]).exists());
    }

    #[test]
    fn what_goes_wrong_is_said() {
        let folder = tempfile::tempdir().unwrap();
        for (answer, want) in [
            ("HTTP/1.0 404 Not Found\r\n\r\n", "404 Not Found"),
            ("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhello", "after 5 of 9 bytes"),
        ] {
            let e = fetch(&serve(answer, 1), folder.path()).unwrap_err();
            assert!(e.message.contains(want) && e.message.contains("train-images"), "{e}");
        }
        assert!(fetch("ftp://x", folder.path()).unwrap_err().message.contains("only http://"));
    }
}
