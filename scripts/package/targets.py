"""What each platform is called by Rust, Debian, npm, Python and OCI. A target that is not here is refused."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    rust: str
    deb: str
    npm_os: str
    npm_cpu: str
    wheel: str
    oci: str
    # The oldest glibc that the programs run with; the build is checked against it.
    glibc: tuple


TARGETS = {
    "x86_64-unknown-linux-gnu": Target(
        "x86_64-unknown-linux-gnu", "amd64", "linux", "x64", "manylinux_2_36_x86_64", "amd64", (2, 36)),
    "aarch64-unknown-linux-gnu": Target(
        "aarch64-unknown-linux-gnu", "arm64", "linux", "arm64", "manylinux_2_36_aarch64", "arm64", (2, 36)),
}
