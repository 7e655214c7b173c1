// The file system: directory trees that no path can leave, walks, and files that appear under their name when they are
// complete.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "checksum.hpp"
#include "protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>

namespace datcp {

/// Something is wrong with one file; others can still be copied. what() is the reason without the file's name.
struct file_error : std::runtime_error {
  explicit file_error(const std::string& why, int error_number = 0) : std::runtime_error(why), number(error_number) {}
  int number; // errno; 0: not an error of the system
};

/// Owns a file descriptor.
class descriptor {
public:
  descriptor() noexcept = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor();
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

private:
  int fd_ = -1;
};

/// The directory where relative paths begin. No path leads out of a confined tree: not by "..", not by a symbolic link,
/// not by an absolute path, and not when a directory is replaced by a link meanwhile, because the kernel checks every
/// step.
class tree {
public:
  /// Paths as the user of this process means them.
  static tree of_user();
  static tree confined_to(descriptor directory) { return tree(std::move(directory)); }

  /// Throws file_error.
  [[nodiscard]] descriptor open(const std::string& path, int flags) const;
  /// Follows links. Empty if the file does not exist.
  [[nodiscard]] std::optional<struct ::stat> status(const std::string& path) const;

private:
  explicit tree(descriptor directory) : directory_(std::move(directory)) {}
  descriptor directory_; // empty: not confined
};

/// A path's directory ("." if it has none) and last part. Slashes at the end are ignored.
struct split_path {
  std::string directory, name;
};
[[nodiscard]] split_path split(std::string_view path);

/// One result of a walk: the entry that is sent to the receiver and, for a file, the open file.
struct found {
  entry what;
  descriptor file;
};

/// Visits `path` and, if `recursive`, all that is in it, directories before their contents, in the order of the names.
/// An entry that cannot be read is visited as `unreadable`.
void walk(const tree& from, const std::string& path, bool recursive, const std::function<void(found)>& visit);

/// Reads the bytes of the file from `offset` on; fewer than requested only at its end.
std::size_t read_at(int file, std::uint64_t offset, std::span<std::byte> into);

/// Adds the first `bytes` bytes of a file to a checksum; returns how many the file had.
std::uint64_t hash_file(int file, std::uint64_t bytes, hasher& running);

/// An incomplete file: it is written under the name ".NAME.datcp-part" in the same directory, and renamed when it is
/// complete. If the copy ends early, the part stays, and a later copy can continue it.
class part_file {
public:
  /// `path` is relative to `base`. With `resume`, the part of an earlier attempt is kept. If the complete file exists
  /// (same size and time), complete() returns true, and no data is needed.
  part_file(const tree& base, const std::string& path, const entry& what, bool resume);

  [[nodiscard]] bool complete() const noexcept { return complete_; }
  /// The number of bytes in the part, and the checksum over them.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] checksum sum() const { return hasher_.sum(); }

  void start_over();
  void append(std::span<const std::byte> data);
  /// Sets the time and rights of the file, and renames it.
  void commit();
  void discard() noexcept;

private:
  void lock_part();
  descriptor directory_, file_;
  std::string name_, part_name_;
  std::uint64_t wanted_size_;
  std::int64_t mtime_;
  mode_t mode_;
  std::uint64_t size_ = 0;
  hasher hasher_;
  bool complete_ = false;
};

/// Creates a directory, or does nothing if it exists. The rights allow the owner to fill it; see finish_directory.
void make_directory(const tree& base, const std::string& path, const entry& what);
/// Gives a directory that has been filled its rights and time.
void finish_directory(const tree& base, const std::string& path, const entry& what);
/// Creates a symbolic link, and replaces a link or file of that name.
void make_symlink(const tree& base, const std::string& path, const std::string& target);

} // namespace datcp
