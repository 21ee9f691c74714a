//! Memory that was freed, given back to the system.
//!
//! The system's allocator keeps what is freed between things that are still in use, and a message of half a gigabyte
//! leaves many such gaps, as do the graphs of a session. They are of use to a peer that goes on; of one that only did
//! harm, or has left, nothing should stay.

/// Gives back what is free, where the allocator can be asked to. That takes as long as a few thousand allocations.
pub fn give_back() {
    tensor::give_back_memory();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: the function takes a number, touches nothing but the allocator's own lists under their locks, and may
        // be called from any thread.
        unsafe { malloc_trim(0) };
    }
}
