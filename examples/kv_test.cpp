// The test of kv_server: `kv_test HOST N` writes, reads and compares N values. The server may be replaced meanwhile.
// SPDX-License-Identifier: BSL-1.0
#include "kv.hpp"
#include <unistd.h>

namespace {

/// Short and long values. A missing key was lost with an earlier server.
dat::expected<void> test(kv::client& all, std::size_t rounds) {
  for (std::size_t i = 1; i <= rounds; ++i) {
    const std::string key = std::to_string(::getpid()) + '.' + std::to_string(i % 10);
    const std::string value(i * 7919 % (i % 2 == 0 ? 100 : 100'000), static_cast<char>('a' + i % 26));
    for (std::optional<std::string> found; !found;) {
      DAT_TRY(const bool done, all.put(key, value));
      if (!done) return dat::error(dat::return_type::insufficient_resources).at("put");
      DAT_TRY(found, all.get(key));
      if (found && *found != value) return dat::error(dat::return_type::internal_error).at("get").hint("Wrong value.");
    }
    if (i % 50 == 0) std::cout << i << " of " << rounds << " values are right" << std::endl;
  }
  return dat::success();
}

} // namespace

int main(int argc, char** argv) {
  kv::client all{{argc > 1 ? argv[1] : "localhost"}};
  const auto opened = all.open();
  return report(opened ? test(all, argc > 2 ? std::stoul(argv[2]) : 100) : opened);
}
