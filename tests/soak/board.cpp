// The board: a file that is mapped shared.
// SPDX-License-Identifier: BSL-1.0
#include "board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace soak {

board::board(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  void* const at = ftruncate(fd, sizeof(contents)) == 0
                       ? mmap(nullptr, sizeof(contents), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
  const int why = errno;
  close(fd);
  if (at == MAP_FAILED) throw std::system_error(why, std::generic_category(), path);
  shared_ = static_cast<contents*>(at); // zero, or data that another process has written
  shared_->words_per_life = sizeof(life) / sizeof(word);
  shared_->places = places;
}

board::~board() { munmap(shared_, sizeof(contents)); }

life* board::begin(std::uint64_t service) noexcept {
  for (std::size_t tries = 0; tries < places; ++tries) {
    const std::uint64_t id = ++shared_->last;
    life& place = shared_->lives[id % places];
    std::uint64_t none = 0;
    if (!place.id.compare_exchange_strong(none, id)) continue;
    place.service = service;
    return &place;
  }
  return nullptr;
}

life* board::find(std::uint64_t id) noexcept {
  life& place = shared_->lives[id % places];
  return id != 0 && place.id == id ? &place : nullptr;
}

} // namespace soak
