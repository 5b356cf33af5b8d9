// SPDX-License-Identifier: Apache-2.0
//! softsign_rust: y = g a x / (1 + |a x|) + b, a bounded function of each element in place of a norm,
//! with learned a (one number), g and b. No crate but std; the types of `plumb/norm_plugin.h` are
//! declared by hand.
//!
//! With z = a x, t = 1 / (1 + |z|), h = z t and dh/dz = t^2:
//!     dx = a dy g t^2,   da = sum of x dy g t^2,   dg = sum over rows of dy h,   db = sum over rows of dy
#![allow(non_camel_case_types)]
#![deny(warnings)]

use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

const OK: i32 = 0;
const INVALID_ARGUMENT: i32 = 3;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNIMPLEMENTED: i32 = 12;
const F32: u32 = 1;
const BF16: u32 = 2;
const F64: u32 = 4;
const INPLACE: u32 = 1;
const DX_ALIAS_DY: u32 = 2;
const NAN_ISOLATED: u32 = 4;
const DX_ACCUMULATE: u32 = 4;
const BWD_X: u32 = 1;
const ATTR_F64: u32 = 1;
const INIT_ZEROS: u32 = 0;
const INIT_ONES: u32 = 1;
const INIT_CONST: u32 = 2;

/// The note that `plumb plugin note` prints and `PLUMB_NORM_NOTE` defines in C.
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

const fn id64(id: &[u8]) -> [u8; 64] {
    let mut out = [0; 64];
    let mut i = 0;
    while i < id.len() {
        out[i] = id[i];
        i += 1;
    }
    out
}

#[used]
#[link_section = ".note.plumb"]
static NOTE: Note = Note {
    owner_size: 6,
    desc_size: 72,
    note_type: 1,
    owner: *b"plumb\0\0\0",
    abi_major: 1,
    abi_minor: 1,
    id: id64(b"org.example.softsign_rust"),
};

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
    kind: u32,
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
    init: u32,
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
    backward_needs: u32,
}

#[repr(C)]
struct Call {
    struct_size: u32,
    flags: u32,
    dtype: u32,
    dim: u32,
    rows: i64,
    x: *const u8,
    x_pitch: i64,
    y: *mut u8,
    y_pitch: i64,
    dy: *const u8,
    dy_pitch: i64,
    dx: *mut u8,
    dx_pitch: i64,
    params: *const *const c_void,
    buffers: *const *mut c_void,
    dparams: *const *mut c_void,
}

type HotFn = unsafe extern "C" fn(*const Instance, *const Call, i64, i64) -> i32;

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
    flags: u32,
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
    forward: HotFn,
    backward: HotFn,
    stats: [*const c_void; 3],
    get_extension: *const c_void,
}

// The pointers refer to constant data.
unsafe impl Sync for Plugin {}
struct Attributes([AttrDef; 1]);
unsafe impl Sync for Attributes {}

pub struct Instance {
    params: [TensorDef; 3],
}

macro_rules! text {
    ($s:literal) => {
        concat!($s, "\0").as_ptr() as *const c_char
    };
}

/// An element type, and its type in computations.
trait Element: Copy {
    type Real: Real;
    fn load(self) -> Self::Real;
    fn store(v: Self::Real) -> Self;
}

trait Real:
    Copy
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::AddAssign
{
    const ONE: Self;
    fn size(self) -> Self;
}

impl Real for f32 {
    const ONE: f32 = 1.0;
    fn size(self) -> f32 {
        self.abs()
    }
}

impl Real for f64 {
    const ONE: f64 = 1.0;
    fn size(self) -> f64 {
        self.abs()
    }
}

impl Element for f32 {
    type Real = f32;
    fn load(self) -> f32 {
        self
    }
    fn store(v: f32) -> f32 {
        v
    }
}

impl Element for f64 {
    type Real = f64;
    fn load(self) -> f64 {
        self
    }
    fn store(v: f64) -> f64 {
        v
    }
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bf16(u16);

impl Element for Bf16 {
    type Real = f32;
    fn load(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
    /// Rounds to nearest, ties to even. A NaN remains a NaN.
    fn store(v: f32) -> Bf16 {
        let bits = v.to_bits();
        let rounded = if v.is_nan() {
            bits | 0x40_0000
        } else {
            bits + 0x7fff + (bits >> 16 & 1)
        };
        Bf16((rounded >> 16) as u16)
    }
}

unsafe fn forward_rows<E: Element>(call: &Call, r0: i64, r1: i64) {
    let alpha = **(call.params as *const *const E::Real);
    let gain = *(call.params as *const *const E::Real).add(1);
    let bias = *(call.params as *const *const E::Real).add(2);
    for r in r0..r1 {
        let x = call.x.offset((r * call.x_pitch) as isize) as *const E;
        let y = call.y.offset((r * call.y_pitch) as isize) as *mut E;
        for i in 0..call.dim as usize {
            let z = alpha * (*x.add(i)).load();
            let h = z / (E::Real::ONE + z.size());
            *y.add(i) = E::store(*gain.add(i) * h + *bias.add(i));
        }
    }
}

unsafe fn backward_rows<E: Element>(call: &Call, r0: i64, r1: i64) {
    let alpha = **(call.params as *const *const E::Real);
    let gain = *(call.params as *const *const E::Real).add(1);
    let dalpha = *(call.dparams as *const *mut E::Real);
    let dgain = *(call.dparams as *const *mut E::Real).add(1);
    let dbias = *(call.dparams as *const *mut E::Real).add(2);
    let add = call.flags & DX_ACCUMULATE != 0;
    for r in r0..r1 {
        let x = call.x.offset((r * call.x_pitch) as isize) as *const E;
        let dy = call.dy.offset((r * call.dy_pitch) as isize) as *const E;
        let dx = call.dx.offset((r * call.dx_pitch) as isize) as *mut E;
        for i in 0..call.dim as usize {
            let (xi, g) = ((*x.add(i)).load(), (*dy.add(i)).load());
            let z = alpha * xi;
            let t = E::Real::ONE / (E::Real::ONE + z.size());
            let dz = g * *gain.add(i) * t * t;
            *dalpha += xi * t * (g * *gain.add(i) * t);
            *dgain.add(i) += g * (z / (E::Real::ONE + z.size()));
            *dbias.add(i) += g;
            let gradient = alpha * dz;
            *dx.add(i) = E::store(if add {
                (*dx.add(i)).load() + gradient
            } else {
                gradient
            });
        }
    }
}

unsafe extern "C" fn forward(_: *const Instance, call: *const Call, r0: i64, r1: i64) -> i32 {
    match (*call).dtype {
        F32 => forward_rows::<f32>(&*call, r0, r1),
        BF16 => forward_rows::<Bf16>(&*call, r0, r1),
        F64 => forward_rows::<f64>(&*call, r0, r1),
        _ => return UNIMPLEMENTED,
    }
    OK
}

unsafe extern "C" fn backward(_: *const Instance, call: *const Call, r0: i64, r1: i64) -> i32 {
    match (*call).dtype {
        F32 => backward_rows::<f32>(&*call, r0, r1),
        BF16 => backward_rows::<Bf16>(&*call, r0, r1),
        F64 => backward_rows::<f64>(&*call, r0, r1),
        _ => return UNIMPLEMENTED,
    }
    OK
}

fn tensor(name: *const c_char, doc: *const c_char, dim: Option<u32>, init: u32) -> TensorDef {
    TensorDef {
        name,
        doc,
        flags: 0,
        ndim: dim.is_some() as u32,
        dims: [dim.unwrap_or(0), 0, 0, 0],
        init,
        reserved: 0,
        init_a: 0.0,
        init_b: 0.0,
        lr_scale: 1.0,
        offset: 0.0,
    }
}

unsafe extern "C" fn create(
    _: *const c_void,
    dim: u32,
    values: *const AttrValue,
    out: *mut *mut Instance,
    err: *mut c_char,
    cap: usize,
) -> i32 {
    let start = (*values).f;
    if !(0.001..=100.0).contains(&start) {
        let words = b"alpha must be in 0.001..100";
        if cap > 0 {
            let n = words.len().min(cap - 1);
            std::ptr::copy_nonoverlapping(words.as_ptr() as *const c_char, err, n);
            *err.add(n) = 0;
        }
        return INVALID_ARGUMENT;
    }
    let mut alpha = tensor(text!("alpha"), text!("The slope at 0."), None, INIT_CONST);
    alpha.init_a = start;
    let params = [
        alpha,
        tensor(text!("weight"), text!("The gain."), Some(dim), INIT_ONES),
        tensor(text!("bias"), text!("The bias."), Some(dim), INIT_ZEROS),
    ];
    // Box::new would end the process if the allocation failed.
    let instance = std::alloc::alloc(std::alloc::Layout::new::<Instance>()) as *mut Instance;
    if instance.is_null() {
        return RESOURCE_EXHAUSTED;
    }
    instance.write(Instance { params });
    *out = instance;
    OK
}

unsafe extern "C" fn destroy(instance: *mut Instance) {
    drop(Box::from_raw(instance));
}

unsafe extern "C" fn layout(instance: *const Instance, out: *mut Layout) -> i32 {
    (*out).tensor_stride = std::mem::size_of::<TensorDef>() as u32;
    (*out).n_params = 3;
    (*out).params = std::ptr::addr_of!((*instance).params) as *const TensorDef;
    (*out).backward_needs = BWD_X;
    OK
}

static ATTRIBUTES: Attributes = Attributes([AttrDef {
    name: text!("alpha"),
    doc: text!("Initial value of the slope at 0."),
    kind: ATTR_F64,
    flags: 0,
    min: 0.001,
    max: 100.0,
    default: AttrValue {
        f: 0.5,
        i: 0,
        s: null(),
    },
    choices: null(),
}]);

static NORM: Plugin = Plugin {
    struct_size: std::mem::size_of::<Plugin>() as u32,
    min_host_minor: 0,
    id: text!("org.example.softsign_rust"),
    name: text!("Softsign"),
    version: text!("1.0.0"),
    vendor: text!("Example"),
    license: text!("Apache-2.0"),
    doc: text!("y = g a x / (1 + |a x|) + b."),
    flags: INPLACE | DX_ALIAS_DY | NAN_ISOLATED,
    dtypes: F32 | BF16 | F64,
    n_attrs: 1,
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

#[no_mangle]
pub extern "C" fn plumb_norm_plugin_v1(index: u32) -> *const Plugin {
    if index == 0 {
        &NORM
    } else {
        null_mut()
    }
}
