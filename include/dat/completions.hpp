// Completions: the events of streams::dto and streams::rmr_bind, one type for each way in which an operation ends.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/ep.hpp>
#include <dat/status.hpp>

#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/text/event_text.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dat { inline namespace v0 {

/// The common part of all completions. Copyable; refers to the endpoint without keeping it alive. The types of
/// completions have `operation()`: what completes. `dat_code(e.operation())` is its number in DAT.
class completion {
public:
  /// The endpoint of the operation. Valid until the endpoint is closed.
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_); }
  /// The cookie of the operation, as `.cookie()` set it.
  [[nodiscard]] dat::cookie cookie() const noexcept { return cookie_; }

  completion(detail::event_key, detail::ep_core* ep, dat::cookie c) noexcept : ep_(ep), cookie_(c) {}

private:
  friend struct detail::event_access;
  detail::ep_core* ep_;
  dat::cookie cookie_;
};

/// A completion that moved `bytes()` bytes.
class transfer : public completion {
public:
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  transfer(detail::event_key key, detail::ep_core* ep, dat::cookie c, std::uint32_t bytes) noexcept
      : completion(key, ep, c), bytes_(bytes) {}

protected:
  [[nodiscard]] std::string text(std::string_view name) const {
    return detail::transfer_text(name, ep().number(), cookie().value(), bytes_);
  }

private:
  std::uint32_t bytes_;
};

/// A send has completed: its memory may be reused, and the peer's adapter has the message.
class send_done : public transfer {
public:
  static constexpr std::string_view name = "send_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::send; }

  using transfer::transfer;
};

/// A message has arrived in the receive that `cookie()` names; `bytes()` is its length.
class recv_done : public transfer {
public:
  static constexpr std::string_view name = "recv_done";
  [[nodiscard]] std::string message() const { return text(name); }
  /// `recv`, or `recv_with_invalidate`.
  [[nodiscard]] dto_operation operation() const noexcept {
    return invalidated_ != 0 ? dto_operation::recv_with_invalidate : dto_operation::recv;
  }
  /// The key of the rmr that this message of the sender has invalidated (uDAPL 2.0 §6.6.21), and whose window is now
  /// closed; empty for other messages. `rmr::is(key)` identifies the rmr.
  [[nodiscard]] std::optional<std::uint32_t> invalidated() const noexcept {
    return invalidated_ != 0 ? std::optional(invalidated_) : std::nullopt;
  }

  using transfer::transfer;
  recv_done(detail::event_key key, detail::ep_core* ep, dat::cookie c, std::uint32_t bytes,
            std::uint32_t invalidated) noexcept
      : transfer(key, ep, c, bytes), invalidated_(invalidated) {}

private:
  std::uint32_t invalidated_ = 0;
};

/// An RDMA write has completed: its memory may be reused, and the data is at the peer.
class rdma_write_done : public transfer {
public:
  static constexpr std::string_view name = "rdma_write_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::rdma_write; }

  using transfer::transfer;
};

/// An RDMA read has completed: the data is in the local memory.
class rdma_read_done : public transfer {
public:
  static constexpr std::string_view name = "rdma_read_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::rdma_read; }

  using transfer::transfer;
};

/// An operation or a bind failed (uDAPL 2.0 §6.7.3.5). The connection is then broken, and a connection event reports it
/// (uDAPL 2.0 §6.8.2).
class dto_failure : public completion {
public:
  static constexpr std::string_view name = "dto_failure";
  /// The operation that failed.
  [[nodiscard]] dto_operation operation() const noexcept { return operation_; }
  [[nodiscard]] dto_status status() const noexcept { return status_; }
  /// The adapter's own code for the cause; its manual explains the code. 0 if the adapter has none.
  [[nodiscard]] std::uint32_t vendor_code() const noexcept { return vendor_; }
  /// The status as a number of verbs (ibv_wc_status).
  [[nodiscard]] int verbs_status() const noexcept { return verbs_; }
  /// Whether the operation was a bind or an unbind of `which`.
  [[nodiscard]] bool is_of(const rmr& which) const noexcept;
  /// The usual cause of the status, a sentence.
  [[nodiscard]] std::string_view cause() const noexcept { return usual_cause(status_); }
  /// The text "rdma_write on ep (qp 17): remote_access: ..." with the usual cause. Allocates.
  [[nodiscard]] std::string message() const {
    return detail::failure_text(operation_, status_, ep().number(), verbs_, vendor_);
  }

  dto_failure(detail::event_key key, detail::ep_core* ep, dat::cookie c, dto_operation op, dto_status s,
              std::uint32_t vendor, std::uint8_t verbs, const void* window = nullptr) noexcept
      : completion(key, ep, c), window_(window), vendor_(vendor), operation_(op), status_(s), verbs_(verbs) {}

private:
  const void* window_; // the window of a bind
  std::uint32_t vendor_;
  dto_operation operation_;
  dto_status status_;
  std::uint8_t verbs_;
};

/// An rmr was bound or unbound (streams::rmr_bind; uDAPL 2.0 §6.7.3.5). A bind that failed is a dto_failure.
class bind_done : public completion {
public:
  static constexpr std::string_view name = "bind_done";
  [[nodiscard]] std::string message() const {
    return detail::bind_text(name, operation_, ep().number(), cookie().value());
  }
  /// `bind` or `unbind`.
  [[nodiscard]] dto_operation operation() const noexcept { return operation_; }
  /// Whether it was a bind of `which`.
  [[nodiscard]] bool is_of(const rmr& which) const noexcept;

  bind_done(detail::event_key key, detail::ep_core* ep, dat::cookie c, dto_operation op, const void* window) noexcept
      : completion(key, ep, c), window_(window), operation_(op) {}

private:
  const void* window_;
  dto_operation operation_;
};

/// Completions of the InfiniBand extensions.
namespace ib {

/// A send with immediate data has arrived.
class recv_immediate_done : public transfer {
public:
  static constexpr std::string_view name = "ib::recv_immediate_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::recv_immediate; }
  /// The 32 bits as the peer sent them; the consumers agree on the byte order.
  [[nodiscard]] std::uint32_t immediate() const noexcept { return immediate_; }

  recv_immediate_done(detail::event_key key, detail::ep_core* ep, dat::cookie c, std::uint32_t bytes,
                      std::uint32_t imm) noexcept
      : transfer(key, ep, c, bytes), immediate_(imm) {}

private:
  std::uint32_t immediate_;
};

/// The peer has written to this memory by RDMA with immediate data: all `bytes()` are in place. The receive that
/// `cookie()` names was consumed, and its buffer is unchanged.
class recv_write_immediate_done : public transfer {
public:
  static constexpr std::string_view name = "ib::recv_write_immediate_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::recv_rdma_immediate; }
  [[nodiscard]] std::uint32_t immediate() const noexcept { return immediate_; }

  recv_write_immediate_done(detail::event_key key, detail::ep_core* ep, dat::cookie c, std::uint32_t bytes,
                            std::uint32_t imm) noexcept
      : transfer(key, ep, c, bytes), immediate_(imm) {}

private:
  std::uint32_t immediate_;
};

/// An RDMA write with immediate data has completed.
class rdma_write_immediate_done : public transfer {
public:
  static constexpr std::string_view name = "ib::rdma_write_immediate_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::rdma_write_immediate; }

  using transfer::transfer;
};

/// A fetch-and-add has completed: the old value is in the local word.
class fetch_and_add_done : public transfer {
public:
  static constexpr std::string_view name = "ib::fetch_and_add_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::fetch_and_add; }

  using transfer::transfer;
};

/// A compare-and-swap has completed: the old value is in the local word. The peer's word was replaced if the old value
/// equals `compare`.
class compare_and_swap_done : public transfer {
public:
  static constexpr std::string_view name = "ib::compare_and_swap_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::compare_and_swap; }

  using transfer::transfer;
};

/// An atomic write has completed: the word is at the peer.
class atomic_write_done : public transfer {
public:
  static constexpr std::string_view name = "ib::atomic_write_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::atomic_write; }

  using transfer::transfer;
};

/// A flush has completed: the bytes are visible or persistent, as it asked. A flush transfers no bytes, so `bytes()`
/// is 0.
class flush_done : public transfer {
public:
  static constexpr std::string_view name = "ib::flush_done";
  [[nodiscard]] std::string message() const { return text(name); }
  [[nodiscard]] static constexpr dto_operation operation() noexcept { return dto_operation::flush; }

  using transfer::transfer;
};

} // namespace ib

}} // namespace dat::v0
