//! Who holds a port, where the system tells.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process that listens.
#[derive(Debug, PartialEq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// The process that listens on a TCP port of this machine, as far as `/proc` shows it to us.
pub fn of_port(port: u16) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inode = tables.iter().find_map(|table| listener_inode(table, port))?;
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| holds(*pid, &socket)).map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Holder { pid, name: name.trim().to_string() }
    })
}

fn holds(pid: u32, socket: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == Path::new(socket)))
}

/// Finds the listening socket in a table of the kernel's: columns are number, local address, remote address, state, …,
/// and the tenth is the inode.
fn listener_inode(table: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (_, found) = columns.get(1)?.rsplit_once(':')?;
        let matches = u16::from_str_radix(found, 16) == Ok(port) && *columns.get(3)? == LISTEN;
        if matches { columns.get(9)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0";
        assert_eq!(listener_inode(table, 8080), Some(222));
        assert_eq!(listener_inode(table, 8081), None);
        assert_eq!(listener_inode("", 1), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn we_find_ourselves() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = of_port(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(holder.pid, std::process::id());
    }
}
