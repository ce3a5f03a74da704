# What quickstart.sh and tests/run.sh need of the machine: Rust, system packages, a Vulkan driver.
# Sourced by both; installs only on Debian and Ubuntu, only as root or through sudo without a
# password, and never where TWOCLOCK_NO_INSTALL=1.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/twoclock
mkdir -p "$cache"

say() { printf '\n== [%4d s] %s\n' "$SECONDS" "$*"; }
die() { printf '\n%s\n' "$*" >&2; exit 1; }

need_rust() {
  if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH=$HOME/.cargo/bin:$PATH
  fi
  command -v cargo >/dev/null || die "Rust is missing: install it with rustup (1.95 or newer), open a new shell, and run this again."
  local version
  version=$(rustc --version | cut -d' ' -f2)
  [ "$(printf '1.95.0\n%s\n' "${version%%-*}" | sort -V | head -n 1)" = 1.95.0 ] ||
    die "Rust $version is too old, 1.95 is needed: run 'rustup update stable' and then this again."
}

# The command that may install, or nothing where none may.
installer() {
  [ "${TWOCLOCK_NO_INSTALL:-}" != 1 ] && command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" = 0 ]; then
    echo env
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    echo sudo
  else
    return 1
  fi
}

# apt_install WHY [-t RELEASE] PACKAGE...
apt_install() {
  local why=$1 as
  shift
  as=$(installer) || die "$why, and this script may not install it here (it is no root on Debian or Ubuntu, or TWOCLOCK_NO_INSTALL=1). Install it yourself and run this again; the Debian and Ubuntu packages: $*"
  echo "installing: $*"
  if ! "$as" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$cache/apt.log" 2>&1; then
    "$as" apt-get update -q >>"$cache/apt.log" 2>&1 || true
    "$as" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >>"$cache/apt.log" 2>&1 ||
      { tail -n 20 "$cache/apt.log" >&2; die "$why, and installing failed (above; all of it in $cache/apt.log). Is this machine connected?"; }
  fi
}

need_compiler() {
  command -v cc >/dev/null || apt_install "A C compiler is missing" build-essential
  command -v pkg-config >/dev/null || apt_install "pkg-config is missing" pkg-config
}

# Whether TWOCLOCK (a built program) finds an adapter. All of its words are kept for who has a fault
# to find.
has_adapter() {
  "$1" devices --json 2>"$cache/devices.log" | grep -q '"backend"'
}

# need_vulkan TWOCLOCK: a software driver where there is no adapter at all.
need_vulkan() {
  has_adapter "$1" && return
  echo "No Vulkan adapter is found: Mesa's software driver will do for trying and testing."
  local release=()
  # Mesa 22.3 of Debian 12 is too old; its backports have a newer one, from the same mirror.
  if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
    local as
    if as=$(installer) && ! apt-get indextargets --format '$(RELEASE)' | grep -q '^bookworm-backports$'; then
      local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
      mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' | sed -n 's/ bookworm$//p' | head -n 1)
      [ -n "$mirror" ] || die "No mirror of Debian 12 is found in apt's sources: add bookworm-backports to them and run this again."
      [ -r "$keyring" ] && keyring="[signed-by=$keyring] " || keyring=
      echo "deb $keyring$mirror bookworm-backports main" | "$as" tee /etc/apt/sources.list.d/bookworm-backports.list >/dev/null
      "$as" apt-get update -q >"$cache/apt.log" 2>&1 || die "apt-get update failed after adding bookworm-backports: see $cache/apt.log."
    fi
    release=(-t bookworm-backports)
  fi
  apt_install "A Vulkan driver is missing" "${release[@]}" libvulkan1 mesa-vulkan-drivers
  has_adapter "$1" || die "There still is no Vulkan adapter: '$1 devices' shows what is found, its errors are in $cache/devices.log."
}

# The package index is found by PIP_INDEX_URL or by asking pip.
need_index() {
  [ -n "${PIP_INDEX_URL:-}" ] && return
  command -v python3 >/dev/null || apt_install "Python is missing" python3 python3-pip
  python3 -c 'import pip' 2>/dev/null || apt_install "pip, which knows the package index, is missing (PIP_INDEX_URL would do as well)" python3-pip
}
