// The file system side of datcp.
// SPDX-License-Identifier: BSL-1.0
#include "files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <memory>
#include <sys/file.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace datcp {

namespace {

/// Flags for opening a file of unknown type: a pipe must not block, and a terminal must not become the controlling one.
constexpr int read_flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
constexpr std::size_t hash_piece = 1 << 20; // bytes read at a time for a checksum
constexpr std::string_view part_suffix = ".datcp-part";
constexpr int directory_flags = O_RDONLY | O_CLOEXEC | O_DIRECTORY;

[[noreturn]] void fail(int error_number) {
  throw file_error(std::generic_category().message(error_number), error_number);
}
void check(long result) {
  if (result < 0) fail(errno);
}

[[nodiscard]] std::int64_t to_ns(const ::timespec& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }
void set_mtime(int fd, std::int64_t ns) {
  auto seconds = ns / 1'000'000'000, rest = ns % 1'000'000'000;
  if (rest < 0) --seconds, rest += 1'000'000'000;
  const std::array<::timespec, 2> times = {::timespec{0, UTIME_OMIT}, ::timespec{seconds, rest}};
  check(::futimens(fd, times.data()));
}

/// The directory that holds `path`, and the last part. Refuses names such as "." and "..".
std::pair<descriptor, std::string> open_parent(const tree& base, const std::string& path) {
  auto [directory, name] = split(path);
  if (name.empty() || name == "." || name == "..") throw file_error("not a name for a file");
  return {base.open(directory, directory_flags), std::move(name)};
}

[[nodiscard]] std::string part_name_of(const std::string& name) {
  constexpr std::size_t longest = 200; // 255 minus the length of the prefix and suffix
  if (name.size() <= longest) return fmt::format(".{}{}", name, part_suffix);
  hasher h;
  h.update(std::as_bytes(std::span(name)));
  return fmt::format(".{}{}", to_hex(h.sum()), part_suffix);
}
[[nodiscard]] bool is_part(std::string_view name) { return name.starts_with('.') && name.ends_with(part_suffix); }

} // namespace

descriptor::~descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

tree tree::of_user() { return tree(descriptor()); }

descriptor tree::open(const std::string& path, int flags) const {
  if (path.find('\0') != std::string::npos) throw file_error("not a name for a file");
  long fd = -1;
  if (!directory_) {
    fd = ::open(path.c_str(), flags);
  } else {
    ::open_how how{};
    how.flags = static_cast<std::uint64_t>(flags);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    do fd = ::syscall(SYS_openat2, directory_.get(), path.c_str(), &how, sizeof how); // the C library has no wrapper
    while (fd < 0 && errno == EAGAIN); // a concurrent rename made the kernel's check uncertain
    if (fd < 0 && errno == EXDEV) throw file_error("leads out of the directory", EXDEV);
  }
  if (fd < 0) fail(errno);
  return descriptor(static_cast<int>(fd));
}

std::optional<struct ::stat> tree::status(const std::string& path) const {
  try {
    const auto it = open(path, O_PATH | O_CLOEXEC);
    struct ::stat s {};
    check(::fstat(it.get(), &s));
    return s;
  } catch (const file_error& e) {
    if (e.number == ENOENT) return std::nullopt;
    throw;
  }
}

split_path split(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {".", std::string(path)};
  return {slash == 0 ? "/" : std::string(path.substr(0, slash)), std::string(path.substr(slash + 1))};
}

// --- walking ------------------------------------------------------------------------------------------------------

namespace {

std::vector<std::string> names_in(int directory) {
  const int copy = ::dup(directory);
  check(copy);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  if (!listing) {
    const int why = errno;
    ::close(copy);
    fail(why);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const ::dirent* e = ::readdir(listing.get()))
    if (const std::string_view name = e->d_name; name != "." && name != ".." && !is_part(name))
      names.emplace_back(name);
  if (errno != 0) fail(errno);
  std::ranges::sort(names);
  return names;
}

struct walker {
  bool recursive;
  const std::function<void(found)>& visit;

  void unreadable(const std::string& as, std::string why) const {
    visit({{.what = entry::kind::unreadable, .path = as, .text = std::move(why)}, {}});
  }

  void open_thing(descriptor fd, const std::string& as) const {
    struct ::stat s {};
    check(::fstat(fd.get(), &s));
    entry e{.mode = s.st_mode & 0777u, .mtime = to_ns(s.st_mtim), .path = as};
    if (S_ISREG(s.st_mode)) {
      e.size = static_cast<std::uint64_t>(s.st_size);
      visit({std::move(e), std::move(fd)});
    } else if (!S_ISDIR(s.st_mode)) {
      throw file_error("neither a file nor a directory");
    } else if (!recursive) {
      throw file_error("is a directory (-r copies it with all that is in it)");
    } else {
      const auto names = names_in(fd.get());
      e.what = entry::kind::directory;
      visit({std::move(e), {}});
      for (const auto& name : names) inside(fd.get(), name, fmt::format("{}/{}", as, name));
    }
  }

  /// One name in an open directory. Links are reported and never followed, so the walk stays inside and always ends.
  void inside(int directory, const std::string& name, const std::string& as) const {
    try {
      std::array<char, 4097> target;
      const auto length = ::readlinkat(directory, name.c_str(), target.data(), target.size());
      if (length >= 0 && static_cast<std::size_t>(length) < target.size()) {
        const std::string to(target.data(), static_cast<std::size_t>(length));
        return visit({{.what = entry::kind::symlink, .path = as, .text = to}, {}});
      }
      const int fd = ::openat(directory, name.c_str(), read_flags | O_NOFOLLOW);
      check(fd);
      open_thing(descriptor(fd), as);
    } catch (const file_error& e) {
      unreadable(as, e.what());
    }
  }
};

} // namespace

void walk(const tree& from, const std::string& path, bool recursive, const std::function<void(found)>& visit) {
  const walker w{recursive, visit};
  const auto last = split(path).name;
  const std::string name = last.empty() || last == ".." ? "." : last;
  try {
    w.open_thing(from.open(path.empty() ? "." : path, read_flags), name);
  } catch (const file_error& e) {
    w.unreadable(name, e.what());
  }
}

std::size_t read_at(int file, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t got = 0;
  while (got < into.size()) {
    const auto n = ::pread(file, into.data() + got, into.size() - got, static_cast<::off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    check(n);
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

std::uint64_t hash_file(int file, std::uint64_t bytes, hasher& running) {
  std::vector<std::byte> piece(hash_piece);
  std::uint64_t at = 0;
  while (at < bytes) {
    const auto n = read_at(file, at, std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes - at)));
    if (n == 0) break;
    running.update(std::span(piece).first(n));
    at += n;
  }
  return at;
}

// --- files in the making ------------------------------------------------------------------------------------------

part_file::part_file(const tree& base, const std::string& path, const entry& what, bool resume)
    : wanted_size_(what.size), mtime_(what.mtime), mode_(what.mode & 0777u) {
  std::tie(directory_, name_) = open_parent(base, path);
  part_name_ = part_name_of(name_);

  struct ::stat there {};
  if (::fstatat(directory_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(there.st_mode)) throw file_error("is a directory");
    // A rename would also replace a write-protected file, which a copy must not do.
    if (S_ISREG(there.st_mode)) check(::faccessat(directory_.get(), name_.c_str(), W_OK, AT_EACCESS));
    if (resume && S_ISREG(there.st_mode) && static_cast<std::uint64_t>(there.st_size) == wanted_size_ &&
        to_ns(there.st_mtim) == mtime_) {
      complete_ = true;
      return;
    }
  }

  lock_part();
  struct ::stat part {};
  check(::fstat(file_.get(), &part));
  if (resume && static_cast<std::uint64_t>(part.st_size) <= wanted_size_)
    size_ = hash_file(file_.get(), wanted_size_, hasher_);
  else
    start_over();
  // Allocates all the space at once, so that a full disk is detected before data is copied. Not every file
  // system can.
  if (wanted_size_ > size_ &&
      ::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<::off_t>(wanted_size_)) != 0 && errno == ENOSPC) {
    if (!resume) discard();
    fail(ENOSPC);
  }
}

/// Opens the part file and locks it: two copies to one name would mix their data.
void part_file::lock_part() {
  for (;;) {
    file_ = descriptor(::openat(directory_.get(), part_name_.c_str(),
                                O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
    check(file_.get());
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw file_error("another copy to this name is in progress");
    // The other copy may have renamed the file between open and flock: then this one has the wrong file.
    struct ::stat ours {
    }, named{};
    check(::fstat(file_.get(), &ours));
    if (::fstatat(directory_.get(), part_name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
      return;
  }
}

void part_file::start_over() {
  check(::ftruncate(file_.get(), 0));
  size_ = 0;
  hasher_.reset();
}

void part_file::append(std::span<const std::byte> data) {
  if (data.size() > wanted_size_ - size_) throw file_error("the sender sent more than it had promised");
  hasher_.update(data);
  while (!data.empty()) {
    const auto n = ::pwrite(file_.get(), data.data(), data.size(), static_cast<::off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    check(n);
    size_ += static_cast<std::size_t>(n);
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void part_file::commit() {
  check(::fchmod(file_.get(), mode_));
  set_mtime(file_.get(), mtime_);
  check(::renameat(directory_.get(), part_name_.c_str(), directory_.get(), name_.c_str()));
  // Some file systems report a failed write only now.
  check(::close(file_.release()));
}

void part_file::discard() noexcept {
  if (file_) ::unlinkat(directory_.get(), part_name_.c_str(), 0);
}

// --- directories and links ----------------------------------------------------------------------------------------

void make_directory(const tree& base, const std::string& path, const entry& what) {
  if (path == ".") return;
  const auto [parent, name] = open_parent(base, path);
  if (::mkdirat(parent.get(), name.c_str(), (what.mode & 0777u) | S_IRWXU) == 0) return;
  if (errno != EEXIST) fail(errno);
  (void)base.open(path, directory_flags); // fails with the reason if it is not a directory
}

void finish_directory(const tree& base, const std::string& path, const entry& what) {
  if (path == ".") return;
  const auto directory = base.open(path, directory_flags | O_NOFOLLOW);
  check(::fchmod(directory.get(), what.mode & 0777u));
  set_mtime(directory.get(), what.mtime);
}

void make_symlink(const tree& base, const std::string& path, const std::string& target) {
  const auto [parent, name] = open_parent(base, path);
  const auto part = part_name_of(name);
  (void)::unlinkat(parent.get(), part.c_str(), 0);
  check(::symlinkat(target.c_str(), parent.get(), part.c_str()));
  if (::renameat(parent.get(), part.c_str(), parent.get(), name.c_str()) != 0) {
    const int why = errno;
    (void)::unlinkat(parent.get(), part.c_str(), 0);
    fail(why);
  }
}

} // namespace datcp
