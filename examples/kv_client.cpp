// The client of kv_server: `kv_client HOST get KEY`, `put KEY VALUE`, or `test N`, which writes, reads and compares.
// When the server has died, the client connects again and repeats what it has asked.
// SPDX-License-Identifier: BSL-1.0
#include "kv.hpp"
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
using namespace std::chrono_literals;

namespace {

class client : kv::node<1> {
public:
  dat::expected<void> open(const char* host) {
    DAT_TRYV(node::open(host));
    DAT_TRY(const auto addresses, dat::resolve(host));
    server_ = addresses.front();
    DAT_TRY(page_, pz.register_memory(chars_, rights));
    return dat::success();
  }
  /// False when the server has no room for the value.
  dat::expected<bool> put(std::string_view key, std::string_view value) {
    DAT_TRY(const auto where, page_.remote(0, value.size())); // refuses a value that is too long
    std::ranges::copy(value, chars_.begin());
    DAT_TRY(const auto answer, call(kv::message::of(kv::kind::put, key, value, where.to_wire())));
    return answer.what == kv::kind::done;
  }
  /// Nothing when the server has no such key.
  dat::expected<std::optional<std::string>> get(std::string_view key) {
    DAT_TRY(const auto answer, call(kv::message::of(kv::kind::get, key)));
    if (answer.what != kv::kind::value) return std::optional<std::string>();
    return std::optional(std::string(answer.is_short() ? answer.text.data() : chars_.data(), answer.size));
  }

private:
  /// Asks until there is an answer. All requests may be repeated: to do one twice changes nothing.
  dat::expected<kv::message> call(const kv::message& request) {
    for (int tries = 0;; ++tries) {
      const auto up = ep_.state() == dat::ep_state::connected ? dat::success() : connect();
      const auto done = up ? ask(request) : up;
      if (done) return inbox[0];
      if (tries == 50) return done.error();
      ep_ = {};
      if (!up) std::this_thread::sleep_for(100ms); // there is no server at the moment
    }
  }
  dat::expected<void> ask(const kv::message& request) {
    outbox[0] = request;
    DAT_TRYV(ep_.post(dat::recv{in}));
    DAT_TRYV(ep_.post(dat::send{out}));
    DAT_TRYV(evd.wait_for<dat::send_done>(ep_, 5s));
    DAT_TRYV(evd.wait_for<dat::recv_done>(ep_, 5s));
    if (inbox[0].what != kv::kind::value || inbox[0].is_short()) return dat::success();
    DAT_TRY(const auto from, kv::place::from_wire(inbox[0].where)); // a long value: read it from the server
    DAT_TRY(const auto into, page_.slice(0, inbox[0].size));
    DAT_TRYV(ep_.post(dat::rdma_read{into, from}));
    DAT_TRYV(evd.wait_for<dat::rdma_read_done>(ep_, 5s));
    return dat::success();
  }
  /// Connects a new endpoint, so that nothing of an earlier connection is left.
  dat::expected<void> connect() {
    evd.drain([](const auto&) {});
    DAT_TRY(ep_, pz.create_ep<dat::rc>(evd));
    DAT_TRYV(ep_.connect(server_, kv::port, 5s));
    DAT_TRYV(evd.wait_for<dat::established>(ep_, 6s));
    return dat::success();
  }

  static constexpr auto rights = dat::local_write | dat::remote_read;
  dat::ia_address server_{};
  std::vector<char> chars_ = std::vector<char>(kv::longest);
  dat::lmr<char, rights> page_{};
  dat::ep<dat::rc> ep_{};
};

/// Writes, reads and compares short and long values. A missing key was lost with an earlier server.
dat::expected<void> test(client& all, std::size_t rounds) {
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

dat::expected<void> run(const std::vector<std::string>& words) {
  client all;
  if (words.size() < 4)
    return dat::error(dat::return_type::invalid_parameter)
        .at("kv_client")
        .hint("HOST get KEY | put KEY VALUE | test N");
  DAT_TRYV(all.open(words[1].c_str()));
  if (words[2] == "test") return test(all, std::stoul(words[3]));
  if (words[2] == "put" && words.size() > 4) {
    DAT_TRY(const bool done, all.put(words[3], words[4]));
    std::cout << (done ? "done\n" : "no room\n");
    return dat::success();
  }
  DAT_TRY(const auto value, all.get(words[3]));
  std::cout << value.value_or("no such key") << '\n';
  return dat::success();
}

} // namespace

int main(int argc, char** argv) {
  const auto done = run({argv, argv + argc});
  if (!done) std::cerr << done.error().message() << '\n';
  return done ? 0 : 1;
}
