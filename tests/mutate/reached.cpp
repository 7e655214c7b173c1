// The end of tests/support/main.cpp in a build with mutants: records which cases reach which mutants, and how long each
// takes.
// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

class reach_listener : public listener_base {
public:
  using listener_base::listener_base;

  void testRunStarting(const Catch::TestRunInfo&) override {
    if (const char* const path = std::getenv("DAT_MUTANTS_REACHED")) file_.open(path);
  }
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    // The mutants that the start of the program reaches belong to the first case.
    if (!first_)
      for (auto& one : mutate::reached) one.store(false, std::memory_order_relaxed);
    first_ = false;
    name_ = info.name;
    tags_ = info.tagsAsString();
    start_ = std::chrono::steady_clock::now();
  }
  assertion_ended_result assertionEnded(const Catch::AssertionStats&) override { return assertion_ended_result(); }
  void testCaseEnded(const Catch::TestCaseStats&) override {
    if (!file_.is_open()) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    file_ << name_ << '\t' << tags_ << '\t' << seconds.count() << '\t';
    for (int number = 1; number < mutate::most; ++number)
      if (mutate::reached[number].load(std::memory_order_relaxed)) file_ << number << ' ';
    file_ << std::endl;
  }

private:
  std::ofstream file_;
  std::string name_, tags_;
  std::chrono::steady_clock::time_point start_;
  bool first_ = true;
};
CATCH_REGISTER_LISTENER(reach_listener)

} // namespace
