// Asks kv_server for a value, or stores one: `kv_client HOST KEY`, `kv_client HOST KEY VALUE`.
// SPDX-License-Identifier: BSL-1.0
#include "kv.hpp"

dat::expected<void> run(const std::vector<const char*>& words) {
  if (words.size() < 3) return dat::error(dat::return_type::invalid_parameter).hint("Give a host, a key, and a value.");
  kv::client all{{words[1]}};
  DAT_TRYV(all.open());
  if (words.size() == 3) {
    DAT_TRY(const auto value, all.get(words[2]));
    std::cout << value.value_or("no such key") << '\n';
  } else {
    DAT_TRY(const bool done, all.put(words[2], words[3]));
    std::cout << (done ? "done\n" : "no room\n");
  }
  return dat::success();
}

int main(int argc, char** argv) { return report(run({argv, argv + argc})); }
