//! Master and worker: they speak interfaces, never sockets.
