//! Loops compiled twice: once for every machine, once for AVX2 with FMA, chosen when they are called.
//!
//! The compiler vectorises the bodies; they only have to be free of branches and of calls. A body takes the constant
//! `FMA`, true where `mul_add` is one instruction.

/// Whether this machine has AVX2 and FMA; asked once, then a load and a test.
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Whether this machine has AVX-512, and what comes before it.
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx512f") && has_avx2()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// `a * b + c`, in one rounding where the machine has the instruction.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a function whose body, a generic function that ends in `const FMA: bool`, is compiled for each
/// instruction set. Type parameters stand in brackets, first their names, then their bounds. A body that is compiled for
/// very many functions names another one to be used `or` else, on processors of this architecture that are too old.
macro_rules! vectorized {
    ($(#[$doc:meta])* $vis:vis fn $name:ident [$($g:ident),*] [$($bounds:tt)*] ($($arg:ident: $t:ty),* $(,)?)
        $(-> $ret:ty)? = $body:ident $(or $other:ident)?;) => {
        $(#[$doc])*
        #[inline]
        $vis fn $name<$($bounds)*>($($arg: $t),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn wide<$($bounds)*>($($arg: $t),*) $(-> $ret)? {
                    $body::<$($g,)* true>($($arg),*)
                }
                if $crate::simd::has_avx2() {
                    // SAFETY: every machine with AVX2, FMA and F16C has the other features named above.
                    return unsafe { wide::<$($g),*>($($arg),*) };
                }
            }
            $crate::simd::vectorized!(@narrow $body [$($g),*] ($($arg),*) $($other)?)
        }
    };
    (@narrow $body:ident [$($g:ident),*] ($($arg:ident),*)) => {
        $body::<$($g,)* false>($($arg),*)
    };
    (@narrow $body:ident [$($g:ident),*] ($($arg:ident),*) $other:ident) => {{
        #[cfg(target_arch = "x86_64")]
        {
            $other::<$($g),*>($($arg),*)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            $body::<$($g,)* false>($($arg),*)
        }
    }};
}
pub(crate) use vectorized;

/// The same slice under its own name, when `T` is `U`.
pub(crate) fn same<T: 'static, U: 'static>(slice: &[T]) -> Option<&[U]> {
    if std::any::TypeId::of::<T>() != std::any::TypeId::of::<U>() {
        return None;
    }
    // SAFETY: the two types are one.
    Some(unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) })
}

/// The same mutable slice under its own name, when `T` is `U`.
pub(crate) fn same_mut<T: 'static, U: 'static>(slice: &mut [T]) -> Option<&mut [U]> {
    if std::any::TypeId::of::<T>() != std::any::TypeId::of::<U>() {
        return None;
    }
    // SAFETY: the two types are one.
    Some(unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) })
}
