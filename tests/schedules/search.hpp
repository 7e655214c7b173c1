// All orders of a few threads, one after the other: a depth-first search through the choices of the scheduler.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace schedule::impl {

/// The choices of one order, from which the search derives those of the next. The test must be deterministic: if a
/// repeated choice has another number of options than before, the program ends.
class search {
public:
  explicit search(unsigned preemptions) noexcept : most_(preemptions) {}

  /// The number of the option to take.
  [[nodiscard]] std::size_t choose(std::size_t options) noexcept;
  /// Like `choose`, but every option except the first costs a preemption.
  [[nodiscard]] std::size_t choose_with_preemption(std::size_t options) noexcept;

  /// Moves to the next order. Returns false when there is none.
  [[nodiscard]] bool advance();

  /// The choices that are not the first option, as `number:option` with commas between.
  [[nodiscard]] std::string text() const;
  /// Sets the choices from a text.
  void replay(const std::string& text);

private:
  struct choice {
    std::size_t options = 0; // 0: not known yet
    std::size_t taken = 0;
  };
  std::vector<choice> path_;
  std::size_t at_ = 0;
  unsigned most_;
  unsigned preemptions_ = 0;
};

} // namespace schedule::impl
