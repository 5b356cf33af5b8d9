//! my_norm: y = g x / (mean|x| + eps), a norm by the mean absolute value of the row, with a learned
//! gain g. Change it for your own norm: the mathematics is in forward_rows and backward_rows, the
//! attributes are in ATTRIBUTES, and the learned parameters in create.
//!
//! With <a> the mean of a over the row, s = 1 / (<|x|> + eps), h = x s:
//!     y = g h
//! Let u = dy g, the gradient of h. As ds/dx_j = -s^2 sign(x_j) / dim,
//!     dx_j = s u_j + sum_i(u_i x_i) ds/dx_j = s (u_j - sign(x_j) <u h>)
//!     dgain = sum over rows of dy h
//! forward saves s of each row; backward reads x again.

use std::os::raw::{c_char, c_void};
use std::ptr::{addr_of, null};

// -- The mathematics -----------------------------------------------------------------------------
//
// No function here allocates: Box, Vec, String and format! are forbidden in forward and backward.

/// Writes y and, in training, s of the rows [r0, r1). Sums are in f64, in the order of the elements.
unsafe fn forward_rows<E: Element>(norm: &Instance, call: &Call, r0: i64, r1: i64) {
    let gain = *call.params as *const E::Real;
    for r in r0..r1 {
        let x: *const E = row(call.x, call.x_pitch, r);
        let y: *mut E = row_mut(call.y, call.y_pitch, r);
        let mut sum = 0.0;
        for i in 0..call.dim as usize {
            sum += (*x.add(i)).load().to_f64().abs();
        }
        let s = E::Real::from_f64(1.0 / (sum / call.dim as f64 + norm.eps));
        if !call.saved.is_null() {
            *row_mut::<E::Real>(call.saved, call.saved_pitch, r) = s;
        }
        for i in 0..call.dim as usize {
            *y.add(i) = E::store((*x.add(i)).load() * s * *gain.add(i));
        }
    }
}

/// Writes or adds dx, and adds to the gradient of the gain.
unsafe fn backward_rows<E: Element>(call: &Call, r0: i64, r1: i64) {
    let gain = *call.params as *const E::Real;
    let dgain = *call.dparams as *mut E::Real;
    let add = call.flags & PLUMB_CALL_DX_ACCUMULATE != 0;
    for r in r0..r1 {
        let x: *const E = row(call.x, call.x_pitch, r);
        let dy: *const E = row(call.dy, call.dy_pitch, r);
        let dx: *mut E = row_mut(call.dx, call.dx_pitch, r);
        let s = *row::<E::Real>(call.saved, call.saved_pitch, r);
        let mut sum = 0.0;
        for i in 0..call.dim as usize {
            let u = (*dy.add(i)).load() * *gain.add(i);
            sum += u.to_f64() * ((*x.add(i)).load() * s).to_f64();
        }
        let mean_uh = E::Real::from_f64(sum / call.dim as f64);
        for i in 0..call.dim as usize {
            let (xi, g) = ((*x.add(i)).load(), (*dy.add(i)).load());
            *dgain.add(i) += g * (xi * s);
            let gradient = s * (g * *gain.add(i) - xi.sign() * mean_uh);
            *dx.add(i) = E::store(if add { (*dx.add(i)).load() + gradient } else { gradient });
        }
    }
}

// -- Attributes and learned parameters -----------------------------------------------------------

pub struct Instance {
    eps: f64,
    gain: TensorDef,
}

static ATTRIBUTES: Attributes<1> = Attributes([AttrDef {
    name: text!("eps"),
    doc: text!("Added to the mean absolute value."),
    kind: PLUMB_ATTR_F64,
    flags: 0,
    min: 1e-12,
    max: 1.0,
    default: AttrValue { f: 1e-5, i: 0, s: null() },
    choices: null(),
}]);

/// Allocates an instance. std::alloc reports that memory ran out; Box::new would end the process.
unsafe extern "C" fn create(
    _host: *const c_void,
    dim: u32,
    values: *const AttrValue,
    out: *mut *mut Instance,
    err: *mut c_char,
    err_cap: usize,
) -> i32 {
    let eps = (*values).f;
    if !(1e-12..=1.0).contains(&eps) {
        write_text(b"eps must be in 1e-12..1", err, err_cap);
        return PLUMB_STATUS_INVALID_ARGUMENT;
    }
    let gain = TensorDef {
        name: text!("weight"), // key in checkpoints: never change it
        doc: text!("The gain."),
        flags: 0,
        ndim: 1,
        dims: [dim, 0, 0, 0],
        init: PLUMB_INIT_ONES,
        reserved: 0,
        init_a: 0.0,
        init_b: 0.0,
        lr_scale: 1.0,
        offset: 0.0,
    };
    let instance = std::alloc::alloc(std::alloc::Layout::new::<Instance>()) as *mut Instance;
    if instance.is_null() {
        return PLUMB_STATUS_RESOURCE_EXHAUSTED;
    }
    instance.write(Instance { eps, gain });
    *out = instance;
    PLUMB_OK
}

unsafe extern "C" fn destroy(instance: *mut Instance) {
    drop(Box::from_raw(instance));
}

unsafe extern "C" fn layout(instance: *const Instance, out: *mut Layout) -> i32 {
    (*out).tensor_stride = std::mem::size_of::<TensorDef>() as u32;
    (*out).n_params = 1;
    (*out).params = addr_of!((*instance).gain);
    (*out).saved_per_row = 1;
    (*out).backward_needs = PLUMB_BACKWARD_READS_X;
    PLUMB_OK
}

// -- The table -----------------------------------------------------------------------------------

static NORM: Plugin = Plugin {
    struct_size: std::mem::size_of::<Plugin>() as u32,
    min_host_minor: 0,
    id: text!("org.example.my_norm"),
    name: text!("my_norm"),
    version: text!("0.1.0"),
    vendor: text!(""),
    license: text!(""),
    doc: text!("y = g x / (mean|x| + eps)."),
    flags: PLUMB_NORM_INPLACE
        | PLUMB_NORM_DX_ALIAS_DY
        | PLUMB_NORM_NAN_ISOLATED
        | PLUMB_NORM_SCALE_INVARIANT,
    dtypes: PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    n_attrs: ATTRIBUTES.0.len() as u32,
    attr_stride: std::mem::size_of::<AttrDef>() as u32,
    attrs: ATTRIBUTES.0.as_ptr(),
    available: null(),
    create,
    destroy,
    layout,
    forward,
    backward,
    stats: [null(); 3],
    get_extension: null(),
};

/// ELF note by which plumb finds the norm without running its code.
#[used]
#[link_section = ".note.plumb"]
static NOTE: Note = Note::of("org.example.my_norm");

#[no_mangle]
pub extern "C" fn plumb_norm_plugin_v1(index: u32) -> *const Plugin {
    if index == 0 {
        &NORM
    } else {
        null()
    }
}

unsafe extern "C" fn forward(norm: *const Instance, call: *const Call, r0: i64, r1: i64) -> i32 {
    match (*call).dtype {
        PLUMB_DTYPE_F32 => forward_rows::<f32>(&*norm, &*call, r0, r1),
        PLUMB_DTYPE_BF16 => forward_rows::<Bf16>(&*norm, &*call, r0, r1),
        PLUMB_DTYPE_F64 => forward_rows::<f64>(&*norm, &*call, r0, r1),
        _ => return PLUMB_STATUS_UNIMPLEMENTED,
    }
    PLUMB_OK
}

unsafe extern "C" fn backward(_norm: *const Instance, call: *const Call, r0: i64, r1: i64) -> i32 {
    match (*call).dtype {
        PLUMB_DTYPE_F32 => backward_rows::<f32>(&*call, r0, r1),
        PLUMB_DTYPE_BF16 => backward_rows::<Bf16>(&*call, r0, r1),
        PLUMB_DTYPE_F64 => backward_rows::<f64>(&*call, r0, r1),
        _ => return PLUMB_STATUS_UNIMPLEMENTED,
    }
    PLUMB_OK
}

// -- Element types -------------------------------------------------------------------------------

/// An element in memory, and the type of computations with it.
trait Element: Copy {
    type Real: Real;
    fn load(self) -> Self::Real;
    fn store(value: Self::Real) -> Self;
}

trait Real:
    Copy + std::ops::Add<Output = Self> + std::ops::Sub<Output = Self> + std::ops::Mul<Output = Self> + std::ops::AddAssign
{
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    /// Returns 1, 0 or -1. Denormals count as 0, because hosts may flush them to zero.
    fn sign(self) -> Self;
}

macro_rules! implement {
    ($t:ty) => {
        impl Real for $t {
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn from_f64(value: f64) -> $t {
                value as $t
            }
            fn sign(self) -> $t {
                if self >= <$t>::MIN_POSITIVE {
                    1.0
                } else if self <= -<$t>::MIN_POSITIVE {
                    -1.0
                } else {
                    0.0
                }
            }
        }
        impl Element for $t {
            type Real = $t;
            fn load(self) -> $t {
                self
            }
            fn store(value: $t) -> $t {
                value
            }
        }
    };
}
implement!(f32);
implement!(f64);

/// The upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bf16(u16);

impl Element for Bf16 {
    type Real = f32;
    fn load(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
    /// Rounds to nearest, ties to even. A NaN remains a NaN.
    fn store(value: f32) -> Bf16 {
        let bits = value.to_bits();
        let rounded = if value.is_nan() { bits | 0x40_0000 } else { bits + 0x7fff + (bits >> 16 & 1) };
        Bf16((rounded >> 16) as u16)
    }
}

unsafe fn row<T>(base: *const c_void, pitch: i64, r: i64) -> *const T {
    (base as *const u8).offset((r * pitch) as isize) as *const T
}

unsafe fn row_mut<T>(base: *mut c_void, pitch: i64, r: i64) -> *mut T {
    (base as *mut u8).offset((r * pitch) as isize) as *mut T
}

/// Writes a message of at most `cap` bytes with its NUL; `to` may be null if `cap` is 0.
unsafe fn write_text(message: &[u8], to: *mut c_char, cap: usize) {
    if cap == 0 {
        return;
    }
    let n = message.len().min(cap - 1);
    std::ptr::copy_nonoverlapping(message.as_ptr() as *const c_char, to, n);
    *to.add(n) = 0;
}

// -- plumb/norm_plugin.h, version 1.0, as far as it is used here -----------------------------------

const PLUMB_OK: i32 = 0;
const PLUMB_STATUS_INVALID_ARGUMENT: i32 = 3;
const PLUMB_STATUS_RESOURCE_EXHAUSTED: i32 = 8;
const PLUMB_STATUS_UNIMPLEMENTED: i32 = 12;
const PLUMB_DTYPE_F32: u32 = 1;
const PLUMB_DTYPE_BF16: u32 = 2;
const PLUMB_DTYPE_F64: u32 = 4;
const PLUMB_NORM_INPLACE: u32 = 1;
const PLUMB_NORM_DX_ALIAS_DY: u32 = 2;
const PLUMB_NORM_NAN_ISOLATED: u32 = 4;
const PLUMB_NORM_SCALE_INVARIANT: u32 = 16;
const PLUMB_CALL_DX_ACCUMULATE: u32 = 4;
const PLUMB_BACKWARD_READS_X: u32 = 1;
const PLUMB_ATTR_F64: u32 = 1;
const PLUMB_INIT_ONES: u32 = 1;

#[repr(C)]
struct AttrValue {
    f: f64,
    i: i64,
    s: *const c_char,
}

#[repr(C)]
struct AttrDef {
    name: *const c_char,
    doc: *const c_char,
    kind: u32, // PLUMB_ATTR_*
    flags: u32,
    min: f64,
    max: f64,
    default: AttrValue,
    choices: *const *const c_char,
}

#[repr(C)]
struct TensorDef {
    name: *const c_char,
    doc: *const c_char,
    flags: u32,
    ndim: u32,
    dims: [u32; 4],
    init: u32, // PLUMB_INIT_*
    reserved: u32,
    init_a: f64,
    init_b: f64,
    lr_scale: f64,
    offset: f64,
}

#[repr(C)]
struct Layout {
    struct_size: u32,
    tensor_stride: u32,
    n_params: u32,
    n_buffers: u32,
    params: *const TensorDef,
    buffers: *const TensorDef,
    saved_per_row: u32,
    saved_per_call: u32,
    partial_elems: u32,
    backward_needs: u32, // PLUMB_BACKWARD_READS_*
    scratch_bytes: usize,
    scratch_bytes_per_row: usize,
}

#[repr(C)]
struct Call {
    struct_size: u32,
    flags: u32, // PLUMB_CALL_*
    dtype: u32,
    dim: u32,
    rows: i64,
    x: *const c_void,
    x_pitch: i64,
    y: *mut c_void,
    y_pitch: i64,
    dy: *const c_void,
    dy_pitch: i64,
    dx: *mut c_void,
    dx_pitch: i64,
    params: *const *const c_void,
    buffers: *const *mut c_void,
    dparams: *const *mut c_void,
    saved: *mut c_void,
    saved_pitch: i64,
    call_saved: *mut c_void,
    scratch: *mut c_void,
    rng_key: u64,
    err: *mut c_char,
    err_cap: usize,
}

type RowFunction = unsafe extern "C" fn(*const Instance, *const Call, i64, i64) -> i32;

#[repr(C)]
pub struct Plugin {
    struct_size: u32,
    min_host_minor: u32,
    id: *const c_char,
    name: *const c_char,
    version: *const c_char,
    vendor: *const c_char,
    license: *const c_char,
    doc: *const c_char,
    flags: u32, // PLUMB_NORM_*
    dtypes: u32,
    n_attrs: u32,
    attr_stride: u32,
    attrs: *const AttrDef,
    available: *const c_void,
    create: unsafe extern "C" fn(
        *const c_void,
        u32,
        *const AttrValue,
        *mut *mut Instance,
        *mut c_char,
        usize,
    ) -> i32,
    destroy: unsafe extern "C" fn(*mut Instance),
    layout: unsafe extern "C" fn(*const Instance, *mut Layout) -> i32,
    forward: RowFunction,
    backward: RowFunction,
    stats: [*const c_void; 3],
    get_extension: *const c_void,
}

/// The note that PLUMB_NORM_NOTE defines in C.
#[repr(C, align(4))]
struct Note {
    owner_size: u32,
    desc_size: u32,
    note_type: u32,
    owner: [u8; 8],
    abi_major: u32,
    abi_minor: u32,
    id: [u8; 64],
}

impl Note {
    const fn of(id: &str) -> Note {
        let from = id.as_bytes();
        let mut padded = [0; 64];
        let mut i = 0;
        while i < from.len() {
            padded[i] = from[i];
            i += 1;
        }
        Note {
            owner_size: 6,
            desc_size: 72,
            note_type: 1,
            owner: *b"plumb\0\0\0",
            abi_major: 1,
            abi_minor: 0,
            id: padded,
        }
    }
}

// Their pointers refer to constants.
struct Attributes<const N: usize>([AttrDef; N]);
unsafe impl<const N: usize> Sync for Attributes<N> {}
unsafe impl Sync for Plugin {}

/// Returns a pointer to a constant that ends with NUL, as C reads it.
macro_rules! text {
    ($text:expr) => {
        concat!($text, "\0").as_ptr() as *const c_char
    };
}
use text;
