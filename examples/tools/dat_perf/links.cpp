// The endpoints of one side of a test and their memory.
// SPDX-License-Identifier: BSL-1.0
#include "links.hpp"

#include <dat/descriptor.hpp>
#include <dat/ib_query.hpp>
#include <dat/try.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace perf {

namespace {

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned>(b));
  return text;
}

std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) {
    const std::size_t value = std::string_view("0123456789abcdef").find(c);
    if (value == std::string_view::npos) throw std::runtime_error("the peer has sent an unusable address");
    return static_cast<unsigned>(value);
  };
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return bytes;
}

/// Throws if the adapter lacks a feature that the test needs.
void check(const dat::ia& ia, const parameters& run) {
  const auto extensions = dat::ib::query_extensions(ia).value();
  const auto needs = [&](bool there, std::string_view what) {
    if (!there)
      throw std::runtime_error(fmt::format("the adapter {} has no {}: choose another --operation", ia.name(), what));
  };
  if (run.operation == operation::write_immediate) needs(extensions.immediate_data, "immediate data");
  if (run.operation == operation::fetch_add) needs(extensions.fetch_and_add, "fetch-and-add");
  if (run.operation == operation::compare_swap) needs(extensions.compare_and_swap, "compare-and-swap");
  if (run.operation == operation::datagram) needs(extensions.datagrams, "datagrams");
  const auto limits = ia.query().value();
  if (run.shared_queue && limits.max_srqs == 0)
    throw std::runtime_error(fmt::format("the adapter {} has no shared receive queues", ia.name()));
  const bool rdma = run.operation == operation::write || run.operation == operation::read ||
                    run.operation == operation::write_immediate;
  const std::uint64_t most = rdma ? limits.max_rdma_size : limits.max_message_size;
  if (run.operation != operation::datagram && run.largest() > most)
    throw std::runtime_error(
        fmt::format("--size: an operation of the adapter {} has at most {} bytes", ia.name(), most));
}

} // namespace

std::uint32_t links::data_receives() const {
  if (run_.there_and_back()) return 4;
  if (!receives()) return 0;
  return run_.operation == operation::datagram ? std::max(4 * run_.depth, 64u) : 2 * run_.depth;
}
std::uint32_t links::receive_slots() const { return data_receives() + (with_credits() && active() ? credit_slots : 0); }
std::uint32_t links::request_slots() const {
  if (run_.there_and_back()) return message_slots;
  return (active() ? run_.depth : 0) + (with_credits() && receives() ? credit_slots : 0);
}

links::links(dat::ia& ia, dat::pz& pz, const parameters& run, bool client)
    : run_(run),
      client_(client),
      words_(run.endpoints),
      old_(std::size_t{run.endpoints} * run.depth),
      counts_(run.endpoints),
      expected_(old_.size()) {
  check(ia, run);
  const auto limits = ia.query().value();
  const std::uint32_t most = std::max(request_slots(), receive_slots());
  if (most > limits.max_dto_per_ep)
    throw std::runtime_error(
        fmt::format("--depth: {} operations under way need {} places in a queue of an endpoint; the "
                    "adapter {} has {}",
                    run.depth, most, ia.name(), limits.max_dto_per_ep));
  if (run.operation == operation::datagram) header_ = 64; // the 40 bytes before a datagram end on a cache line
  out_stride_ = (std::size_t{run.largest()} + 63) / 64 * 64;
  in_stride_ = out_stride_ + header_;
  const std::uint64_t budget = (64u << 20) / in_stride_ / run.endpoints;
  buffers_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(budget, 1, run.depth));
  const std::uint64_t bytes = (out_stride_ + in_stride_) * buffers_ * run.endpoints;
  if (bytes > most_memory)
    throw std::runtime_error(
        fmt::format("--size: the test needs {} MiB of memory on each side, and at most {} are used: "
                    "take fewer --endpoints",
                    bytes >> 20, most_memory >> 20));
  memory_.resize(bytes);
  region_ = pz.register_memory(memory_, rights).value();
  words_region_ = pz.register_memory(words_, dat::local_write | dat::remote_atomic).value();
  old_region_ = pz.register_memory(old_, dat::local_write).value();

  const std::uint32_t room = (request_slots() + receive_slots()) * run.endpoints + 1;
  if (run.shared_queue) {
    merged_evd_ = ia.create_evd<merged>(room).value();
    source_ = source_of(merged_evd_);
  } else {
    evd_ = ia.create_evd<lean>(room).value();
    source_ = source_of(evd_);
  }
  connections_ = ia.create_evd<dat::stream::connection | dat::stream::datagrams>(2 * run.endpoints).value();

  if (run.operation == operation::datagram) {
    make_endpoints([&](const dat::ep_attributes& a) -> dat::expected<void> {
      DAT_TRY(auto ep, pz.create_ep<dat::ud>(dat::ib::datagram_evds{evd_, evd_, connections_}, a));
      ud_.push_back(std::move(ep));
      return dat::success();
    });
    if (run.largest() > ud_.front().max_message_size())
      throw std::runtime_error(fmt::format("--size: a datagram of the adapter {} has at most {} bytes", ia.name(),
                                           ud_.front().max_message_size()));
    max_inline_ = std::min(run.max_inline, ud_.front().max_inline());
  } else if (run.shared_queue) {
    shared_ = pz.create_srq({.max_recv_dtos = std::max(receive_slots(), 1u) * run.endpoints}).value();
    make_endpoints([&](const dat::ep_attributes& a) -> dat::expected<void> {
      DAT_TRY(auto ep, pz.create_ep<dat::rc>(dat::ep_evds{merged_evd_, merged_evd_, connections_}, shared_, a));
      with_srq_.push_back(std::move(ep));
      return dat::success();
    });
    for (std::uint32_t e = 0; e < run.endpoints; ++e) with_srq_[e].set_context(std::uint64_t{e}).value();
    refs_.assign(with_srq_.begin(), with_srq_.end());
  } else {
    make_endpoints([&](const dat::ep_attributes& a) -> dat::expected<void> {
      DAT_TRY(auto ep, pz.create_ep<dat::rc>(dat::ep_evds{evd_, evd_, connections_}, a));
      rc_.push_back(std::move(ep));
      return dat::success();
    });
    refs_.assign(rc_.begin(), rc_.end());
  }
  const std::size_t in = out_stride_ * buffers_ * run.endpoints;
  for (std::size_t i = 0; i < std::size_t{run.endpoints} * buffers_; ++i) {
    const std::size_t before = header_ == 0 ? 0 : header_ - dat::ib::grh::size;
    in_parts_.push_back(region_.slice(in + i * in_stride_ + before, run.largest() + (header_ - before)).value());
  }
  if (run.mode != mode::coroutine) // coroutines post their own
    for (std::uint32_t e = 0; e < run.endpoints; ++e)
      for (std::uint32_t slot = 0; slot < receive_slots(); ++slot) post_receive(e, slot);
}

/// If the adapter does not support so much inline data, the endpoints have none, unless the user requested it.
template <class Make>
void links::make_endpoints(Make make) {
  dat::ep_attributes attributes{.max_request_dtos = std::max(request_slots(), 1u),
                                .max_recv_dtos = std::max(receive_slots(), 1u),
                                .max_inline = run_.max_inline};
  for (std::uint32_t e = 0; e < run_.endpoints; ++e) {
    auto made = make(attributes);
    if (!made && e == 0 && attributes.max_inline != 0 && !run_.exact_inline) {
      attributes.max_inline = 0;
      made = make(attributes);
    }
    if (!made) throw std::runtime_error(made.error().message());
  }
  max_inline_ = attributes.max_inline;
}

grants links::offer() const {
  const std::size_t in = out_stride_ * buffers_ * run_.endpoints;
  grants mine;
  if (ud_.empty()) {
    mine.data = to_hex(region_.remote().slice(in, region_.size() - in).value().to_wire());
    mine.words = to_hex(words_region_.remote().to_wire());
  }
  for (const auto& ep : ud_) mine.datagrams.push_back(to_hex(ep.export_descriptor().value().to_wire()));
  return mine;
}

void links::take(const grants& theirs) {
  if (ud_.empty()) {
    theirs_ = remote_part::from_wire(from_hex(theirs.data)).value();
    their_words_ = remote_words::from_wire(from_hex(theirs.words)).value();
    return;
  }
  if (theirs.datagrams.size() != ud_.size()) throw std::runtime_error("the peer has another number of endpoints");
  for (std::size_t e = 0; e < ud_.size(); ++e)
    peers_.push_back(ud_[e].connect(dat::ib::descriptor::from_wire(from_hex(theirs.datagrams[e])).value()).value());
}

void links::connect(const dat::ia_address& server, std::uint16_t port, std::uint64_t token, dat::timeout limit) {
  const auto qualifier = dat::conn_qual::make(port).value();
  const auto one = [&](auto& ep, std::uint32_t index) {
    ep.connect(server, qualifier, limit, greeting{greeting::kind::endpoint, token, index}.to_wire()).value();
  };
  for (std::uint32_t e = 0; e < rc_.size(); ++e) one(rc_[e], e);
  for (std::uint32_t e = 0; e < with_srq_.size(); ++e) one(with_srq_[e], e);
}

void links::accept(dat::cr& request, std::uint32_t index) {
  if (index < rc_.size())
    request.accept(rc_[index]).value();
  else if (index < with_srq_.size())
    request.accept(with_srq_[index]).value();
  else
    throw std::runtime_error("a client asks for an endpoint that its test has not");
}

void links::wait_established(dat::timeout limit) {
  for (std::size_t e = 0; e < rc_.size() + with_srq_.size(); ++e)
    connections_.wait_for<dat::established>(limit + std::chrono::seconds(1)).value();
}

void links::set_size(std::uint32_t bytes) {
  size_ = bytes;
  out_parts_.clear();
  remote_parts_.clear();
  for (std::size_t i = 0; i < std::size_t{run_.endpoints} * buffers_; ++i) {
    out_parts_.push_back(region_.slice(i * out_stride_, bytes).value());
    if (ud_.empty() && !run_.atomic()) remote_parts_.push_back(theirs_.slice(i * in_stride_, bytes).value());
  }
}

void links::post_request(std::uint32_t e, std::uint32_t slot) {
  with_request(e, slot, 0, [&](const auto& operation) { post(e, operation); });
}

void links::post_message(std::uint32_t e, std::uint32_t immediate) {
  const bool suppress = ++counts_[e].messages % (message_slots / 2) != 0;
  with_request(e, 0, immediate, [&](auto operation) {
    if (suppress) operation.suppress_completion();
    post(e, operation);
  });
}

void links::post_credit(std::uint32_t e) { post(e, dat::send().cookie(ticket{ticket::kind::credit, e, 0}.cookie())); }

void links::post_receive(std::uint32_t e, std::uint32_t slot) {
  const part into = receive_part(e, slot);
  const auto receive = dat::recv{into}.cookie(ticket{ticket::kind::receive, e, slot}.cookie());
  if (run_.shared_queue)
    shared_.post(receive).value();
  else
    post(e, receive);
}

void links::check_word(std::uint32_t e, std::uint32_t slot) const {
  const std::size_t i = std::size_t{e} * run_.depth + slot;
  if (old_[i] != expected_[i])
    throw std::runtime_error(fmt::format(
        "an atomic of endpoint {} has returned {} in place of {}: the adapters count wrong", e, old_[i], expected_[i]));
}

} // namespace perf
