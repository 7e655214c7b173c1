// dat-ping: tests RDMA between two hosts. Connects, sends, writes, reads, counts, sends datagrams, and reports how
// long each takes.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/ib_query.hpp>
#include <dat/ud.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using microseconds = std::chrono::duration<double, std::micro>;
using json = nlohmann::ordered_json;

constexpr std::size_t window_size = 1 << 20; // of the server, for each client
using window = dat::remote_segment<char, dat::mem_priv::remote_read | dat::mem_priv::remote_write>;
using counter = dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic>;

struct options {
  std::string host;
  std::string address; // of this side
  std::uint16_t port = 7479;
  std::uint32_t size = 64;
  unsigned count = 3;
  double limit = 5; // time limit of each step in seconds
  bool serve = false, once = false, json = false;
};

std::atomic<bool> stop_requested = false;

dat::ia open(const options& o) {
  if (!o.address.empty()) return dat::ia::open(dat::ia_address::parse(o.address).value()).value();
  return o.host.empty() ? dat::ia::open().value() : dat::ia::open_by_route(o.host).value();
}

// --- the server ---------------------------------------------------------------------------------------------------

/// One client: its messages are returned, and it may access the window.
class guest {
public:
  template <class Evd>
  guest(dat::pz& pz, const Evd& evd, dat::cr request) : memory_(2 * window_size) {
    const std::span all(memory_);
    echo_ = pz.register_memory(all.first(window_size), dat::local_read | dat::local_write).value();
    window_ =
        pz.register_memory(all.last(window_size), dat::local_write | dat::remote_read | dat::remote_write).value();
    counter_ = pz.register_memory(count_, dat::local_write | dat::remote_atomic).value();
    ep_ = pz.create_ep<dat::rc>(evd).value();
    ep_.post(dat::recv{echo_}).value();
    // The memory that the client may use: the wire forms of both, one behind the other.
    std::array<std::byte, 2 * window::wire_size> grants{};
    std::ranges::copy(window_.remote().to_wire(), grants.begin());
    std::ranges::copy(counter_.remote().to_wire(), grants.begin() + window::wire_size);
    request.accept(ep_, grants).value();
  }
  void answer(std::size_t bytes) {
    // One buffer: the client sends again only after it has received its answer, so one receive suffices.
    const auto back = echo_.slice(0, bytes).value();
    ep_.post(dat::recv{echo_}).value();
    ep_.post(dat::send{back}).value();
  }
  [[nodiscard]] bool is(dat::ep_ref other) const { return ep_ == other; }

private:
  std::vector<char> memory_;
  std::array<std::uint64_t, 1> count_{};
  dat::lmr<char, dat::mem_priv::local_read | dat::mem_priv::local_write> echo_;
  dat::lmr<char, dat::mem_priv::local_write | dat::mem_priv::remote_read | dat::mem_priv::remote_write> window_;
  dat::lmr<std::uint64_t, dat::mem_priv::local_write | dat::mem_priv::remote_atomic> counter_;
  dat::ep<dat::rc> ep_;
};

/// Returns each datagram to its sender.
class datagram_echo {
public:
  template <class Evd>
  datagram_echo(dat::ia& ia, dat::pz& pz, Evd& evd, std::uint16_t port)
      : ep_(pz.create_ep<dat::ud>(evd, {.max_request_dtos = slots, .max_recv_dtos = slots}).value()),
        service_(dat::ib::datagram_service::listen(ia, dat::conn_qual::make(port).value(), evd).value()),
        slot_size_(ep_.max_message_size() + dat::ib::grh::size),
        memory_(slots * slot_size_),
        region_(pz.register_memory(memory_, dat::local_read | dat::local_write).value()) {
    for (std::uint64_t i = 0; i < slots; ++i) receive(i);
  }
  void answer(dat::ib::datagram_request& request) { request.accept(ep_).value(); }
  void answer(const dat::ib::datagram_recv_done& message) {
    const std::uint64_t i = message.cookie().value();
    const auto peer = ep_.reply_to(message, dat::ib::datagram_view(message, slot(i, 0, slot_size_))).value();
    ep_.post(dat::ib::send_to{slot(i, dat::ib::grh::size, message.payload_bytes()), peer}.cookie(i)).value();
  }
  void receive(std::uint64_t i) { ep_.post(dat::recv{slot(i, 0, slot_size_)}.cookie(i)).value(); }

private:
  static constexpr std::uint32_t slots = 16;
  dat::local_segment<std::byte, dat::mem_priv::local_read | dat::mem_priv::local_write>
  slot(std::uint64_t i, std::size_t first, std::size_t count) {
    return region_.slice(i * slot_size_ + first, count).value();
  }
  dat::ep<dat::ud> ep_;
  dat::ib::datagram_service service_;
  std::size_t slot_size_;
  std::vector<std::byte> memory_;
  dat::lmr<std::byte, dat::mem_priv::local_read | dat::mem_priv::local_write> region_;
};

void serve(const options& o) {
  auto ia = open(o);
  auto pz = ia.create_pz().value();
  auto evd = ia.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests |
                           dat::stream::datagrams>(1024)
                 .value();
  const auto psp = ia.create_psp(dat::conn_qual::make(o.port).value(), evd).value();
  fmt::print(stderr, "dat-ping: serving on {} at {}, port {}\n", ia.name(), ia.address().host_string(), psp.port());

  std::optional<datagram_echo> datagrams;
  if (dat::ib::query_extensions(ia).value().datagrams) datagrams.emplace(ia, pz, evd, o.port);
  std::list<guest> guests;
  bool over = false;
  const auto leave = [&](const dat::connection_event& e) {
    guests.remove_if([&](const guest& g) { return g.is(e.ep()); });
    over = o.once;
  };
  while (!stop_requested && !over) {
    auto event = evd.wait(250ms);
    if (!event) continue; // no event, or a signal
    try {
      std::visit(dat::overloaded{
                     [&](dat::connection_request& request) { guests.emplace_back(pz, evd, std::move(request)); },
                     [&](const dat::recv_done& r) {
                       for (guest& g : guests)
                         if (g.is(r.ep())) g.answer(r.bytes());
                     },
                     [&](dat::ib::datagram_request& request) { datagrams->answer(request); },
                     [&](const dat::ib::datagram_recv_done& message) { datagrams->answer(message); },
                     [&](const dat::ib::datagram_send_done& e) { datagrams->receive(e.cookie().value()); },
                     [&](const dat::disconnected& e) { leave(e); },
                     [&](const dat::connection_broken& e) { leave(e); },
                     [&](const dat::accept_completion_error& e) { leave(e); },
                     [](const auto&) {},
                 },
                 event.assume_value());
    } catch (const dat::failure& e) { // a failure of one client, whose connection ends
      fmt::print(stderr, "dat-ping: {}\n", e.what());
    }
  }
}

// --- the client ---------------------------------------------------------------------------------------------------

/// The number of repetitions of a step, and their time.
struct timing {
  const char* step;
  std::vector<double> us;
  [[nodiscard]] double least() const { return *std::min_element(us.begin(), us.end()); }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double t : us) sum += t;
    return sum / static_cast<double>(us.size());
  }
};

class client {
public:
  explicit client(const options& o)
      : o_(o),
        limit_(std::chrono::duration_cast<dat::timeout>(std::chrono::duration<double>(o.limit))),
        ia_(open(o)),
        evd_(ia_.create_evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams>(64).value()),
        pz_(ia_.create_pz().value()),
        out_memory_(o.size),
        in_memory_(o.size),
        out_(pz_.register_memory(out_memory_, dat::local_read).value()),
        in_(pz_.register_memory(in_memory_, dat::local_write).value()),
        old_(pz_.register_memory(old_value_, dat::local_write).value()),
        ep_(pz_.create_ep<dat::rc>(evd_).value()) {}

  void run() {
    step("connect", 1, [&](unsigned) { connect(); });
    step("send", o_.count, [&](unsigned turn) {
      fill(turn);
      ep_.post(dat::recv{in_}.cookie(1)).value();
      ep_.post(dat::send{out_}).value();
      evd_.wait_for<dat::send_done>(ep_, limit_).value();
      if (evd_.wait_for<dat::recv_done>(ep_, limit_).value().bytes() != o_.size) throw std::runtime_error("cut short");
      compare();
    });
    const window part = window_.slice(0, o_.size).value();
    step("write", o_.count, [&](unsigned turn) {
      fill(turn + 100);
      ep_.post(dat::rdma_write{out_, part}).value();
      evd_.wait_for<dat::rdma_write_done>(ep_, limit_).value();
    });
    step("read", o_.count, [&](unsigned) {
      ep_.post(dat::rdma_read{in_, part}).value();
      evd_.wait_for<dat::rdma_read_done>(ep_, limit_).value();
      compare(); // with the data that was written
    });
    if (ia_.query<dat::provider_attributes>().value().specific.find("DAT_IB_FETCH_AND_ADD_OP") != nullptr)
      step("atomic", o_.count, [&](unsigned turn) {
        ep_.post(dat::ib::fetch_and_add{old_, counter_, 1}).value();
        evd_.wait_for<dat::ib::fetch_and_add_done>(ep_, limit_).value();
        if (old_value_[0] != turn) throw std::runtime_error("the server counts wrong");
      });
    if (dat::ib::query_extensions(ia_).value().datagrams) datagrams();
    step("disconnect", 1, [&](unsigned) {
      ep_.disconnect(dat::close_mode::graceful).value();
      evd_.wait_for<dat::disconnected>(ep_, limit_).value();
    });
  }

  [[nodiscard]] const std::vector<timing>& timings() const { return timings_; }
  [[nodiscard]] const char* where() const { return step_; }
  [[nodiscard]] std::string from() const { return fmt::format("{} ({})", ia_.name(), ia_.address().host_string()); }
  [[nodiscard]] std::string to() const { return server_.host_string(); }

private:
  template <class F>
  void step(const char* name, unsigned count, F&& once) {
    step_ = name;
    timing t{name, {}};
    for (unsigned turn = 0; turn < count; ++turn) {
      const auto begin = clock::now();
      once(turn);
      t.us.push_back(microseconds(clock::now() - begin).count());
    }
    timings_.push_back(std::move(t));
  }

  /// One packet there and back; a lost packet is repeated.
  void datagrams() {
    auto ep = pz_.create_ep<dat::ud>(evd_).value();
    const std::size_t bytes = std::min<std::size_t>(o_.size, ep.max_message_size());
    std::vector<char> memory(bytes + dat::ib::grh::size);
    const auto in = pz_.register_memory(memory, dat::local_write).value();
    const auto part = out_.slice(0, bytes).value();
    dat::ib::address_handle server;
    step("acquaint", 1, [&](unsigned) {
      ep.connect(server_, dat::conn_qual::make(o_.port).value(), limit_).value();
      server = evd_.wait_for<dat::ib::datagram_established>(ep, limit_ + 1s).value().peer().value();
    });
    step("datagram", o_.count, [&](unsigned turn) {
      fill(turn + 200);
      ep.post(dat::recv{in}).value();
      const auto give_up = clock::now() + limit_;
      for (;;) {
        ep.post(dat::ib::send_to{part, server}).value();
        evd_.wait_for<dat::ib::datagram_send_done>(ep, limit_).value();
        auto got = evd_.wait_for<dat::ib::datagram_recv_done>(ep, limit_ / 10);
        if (!got && clock::now() < give_up) continue;
        const auto payload = dat::ib::datagram_view(got.value(), in).payload();
        if (payload.size() == bytes && std::memcmp(payload.data(), out_memory_.data(), bytes) == 0) return;
        ep.post(dat::recv{in}).value(); // a late answer to an earlier packet
      }
    });
  }
  void connect() {
    const auto family = ia_.address().family();
    const auto addresses = dat::resolve(o_.host).value();
    server_ = addresses.front();
    for (const auto& a : addresses)
      if (a.family() == family) {
        server_ = a;
        break;
      }
    ep_.connect(server_, dat::conn_qual::make(o_.port).value(), limit_).value();
    const auto up = evd_.wait_for<dat::established>(ep_, limit_ + 1s).value();
    const auto granted = window::from_wire(up.private_data());
    if (!granted || granted.value().size() < o_.size) throw std::runtime_error("the server is no dat-ping");
    window_ = granted.value();
    counter_ = counter::from_wire(up.private_data().subspan(window::wire_size)).value();
  }
  void fill(unsigned turn) {
    for (std::size_t i = 0; i < out_memory_.size(); ++i) out_memory_[i] = static_cast<char>(7 * i + turn);
  }
  void compare() const {
    if (in_memory_ != out_memory_) throw std::runtime_error("the returned data differs from the data that was sent");
  }

  const options& o_;
  dat::timeout limit_;
  dat::ia ia_;
  dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::datagrams> evd_;
  dat::pz pz_;
  std::vector<char> out_memory_, in_memory_;
  std::array<std::uint64_t, 1> old_value_{};
  dat::lmr<char, dat::mem_priv::local_read> out_;
  dat::lmr<char, dat::mem_priv::local_write> in_;
  dat::lmr<std::uint64_t, dat::mem_priv::local_write> old_;
  dat::ep<dat::rc> ep_;
  dat::ia_address server_;
  window window_;
  counter counter_;
  const char* step_ = "open";
  std::vector<timing> timings_;
};

void print(const options& o, const client* c, const std::string& problem) {
  if (o.json) {
    json j = {{"ok", problem.empty()}, {"host", o.host}, {"port", o.port}, {"size", o.size}};
    if (c != nullptr) {
      j["from"] = c->from();
      j["steps"] = json::array();
      for (const auto& t : c->timings())
        j["steps"].push_back({{"step", t.step},
                              {"times", t.us.size()},
                              {"microseconds_least", t.least()},
                              {"microseconds_mean", t.mean()}});
    }
    if (!problem.empty()) j["problem"] = problem;
    fmt::print("{}\n", j.dump(2, ' ', false, json::error_handler_t::replace));
  } else if (c != nullptr && problem.empty()) {
    fmt::print("{}, port {}, from {}, {} bytes\n", c->to(), o.port, c->from(), o.size);
    for (const auto& t : c->timings())
      fmt::print("{:<11}{:>10.1f} us{}\n", t.step, t.least(),
                 t.us.size() > 1 ? fmt::format(" at least, {:.1f} us on average of {}", t.mean(), t.us.size()) : "");
  }
  if (!problem.empty()) fmt::print(stderr, "dat-ping: {}\n", problem);
}

int ping(const options& o) {
  std::unique_ptr<client> c;
  std::string problem;
  try {
    c = std::make_unique<client>(o);
    c->run();
  } catch (const std::exception& e) {
    problem = fmt::format("{}: {}", c ? c->where() : "open", e.what());
  }
  print(o, c.get(), problem);
  return problem.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Checks RDMA between two hosts: connects, sends, writes, reads, counts by atomics, sends datagrams.\n"
               "  dat-ping --serve        on one host\n"
               "  dat-ping HOST           on the other\n"
               "Ends with 0 when everything worked; else one line says what did not.",
               "dat-ping");
  options o;
  app.add_option("HOST", o.host, "Name or address of the server");
  app.add_flag("--serve", o.serve, "Be the server, until SIGINT or SIGTERM");
  app.add_flag("--once", o.once, "As server: end after one client");
  app.add_option("--address", o.address, "Use the adapter that has this address");
  app.add_option("--port", o.port, "Port of the server")->capture_default_str()->check(CLI::Range(1, 65535));
  app.add_option("--size", o.size, "Bytes of each transfer")->capture_default_str()->check(CLI::Range(1u, 1u << 20));
  app.add_option("--count", o.count, "How often each step is done")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--limit", o.limit, "Seconds for each step")->capture_default_str()->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--json", o.json, "As JSON on standard output");
  try {
    app.parse(argc, argv);
    if (o.serve != o.host.empty()) throw CLI::ValidationError("either HOST or --serve");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (!o.serve) return ping(o);
  std::signal(SIGINT, [](int) { stop_requested = true; });
  std::signal(SIGTERM, [](int) { stop_requested = true; });
  try {
    serve(o);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "dat-ping: {}\n", e.what());
    return 1;
  }
}
