// SPDX-License-Identifier: Apache-2.0
// Links libplumb from where pkg-config finds it.
fn main() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let found = std::process::Command::new("pkg-config")
        .args(["--variable=libdir", "plumb"])
        .output()
        .expect("pkg-config must be installed");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let directory = String::from_utf8(found.stdout).expect("UTF-8");
    println!("cargo:rustc-link-search=native={}", directory.trim());
    println!("cargo:rustc-link-lib=dylib=plumb");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", directory.trim());
}
