// The providers of this process: those that programs add, and those that dat.conf names, loaded when a program opens
// one of them (uDAPL 2.0 §8.2, §8.4). SPDX-License-Identifier: BSL-1.0
#pragma once

#include "names.hpp"
#include "tables.hpp"

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace dat_registry {

/// A library that dat.conf names. It stays in memory: its threads may outlive the last adapter.
struct library {
  void* handle = nullptr;
  DAT_PROVIDER_FINI_FUNC fini = nullptr;
  DAT_PROVIDER_INFO info{};
  std::string instance_data; // the provider may keep the pointer
};

/// A provider of one name, API version and thread safety.
struct provider {
  DAT_PROVIDER_INFO info{};
  const DAT_PROVIDER* table = nullptr;
  int opens = 0;           // adapters that are open, being opened or being closed
  library* from = nullptr; // null when a program added the provider
};
using provider_ref = std::shared_ptr<provider>;

enum class opened_by { open, query }; // dat_ia_open, or dat_ib_open_query

/// An adapter that a program has opened.
struct adapter {
  provider_ref of;
  const DAT_PROVIDER* table = nullptr;
  opened_by how = opened_by::open;
  std::uint64_t id = 0; // a provider may issue the handle of a closed adapter again
  bool closing = false;
};

/// While it exists, its thread is inside the registry, where it may hold locks and allocate memory.
class inside {
public:
  inside() noexcept : inside(true) {}
  inside(const inside&) = delete;
  inside& operator=(const inside&) = delete;
  ~inside() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    now_ = before_;
  }
  /// Whether the calling thread is inside already: a signal handler then has interrupted it.
  [[nodiscard]] static bool is() noexcept { return now_; }

protected:
  explicit inside(bool now) noexcept : before_(std::exchange(now_, now)) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

private:
  const bool before_;
  // A signal handler may be the first to read it in a thread, so the access must not allocate memory.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool now_ = false;
};
/// While it exists, its thread is in a provider, which may call every function of the registry.
class outside : inside {
public:
  outside() noexcept : inside(false) {}
};

class providers {
public:
  /// The one registry of the process.
  static providers& instance();

  DAT_RETURN add(const DAT_PROVIDER* table, const DAT_PROVIDER_INFO* info);
  DAT_RETURN remove(const DAT_PROVIDER* table, const DAT_PROVIDER_INFO* info);
  DAT_RETURN list(DAT_COUNT room, DAT_COUNT* number, DAT_PROVIDER_INFO** to);

  /// Finds the provider of a name, loads it if necessary, and counts a use of it.
  DAT_RETURN acquire(std::string_view name, const request& wanted, provider_ref& to);
  /// Ends a use. With the last one, the provider of a library is removed.
  void release(const provider_ref& p) noexcept;

  /// Keeps the handle of an adapter. Once it is kept, it owns the use of the provider.
  void opened(DAT_IA_HANDLE ia, const provider_ref& p, opened_by how);
  /// The table for calls on an adapter; null when `ia` is no open adapter.
  [[nodiscard]] const DAT_PROVIDER* table_of(DAT_IA_HANDLE ia) noexcept;
  /// An open adapter of a name; null when there is none.
  [[nodiscard]] DAT_IA_HANDLE adapter_of(std::string_view name) noexcept;
  /// Starts to close an adapter: only one thread does. Its table is null when `ia` is no open adapter of that kind.
  [[nodiscard]] adapter closing(DAT_IA_HANDLE ia, opened_by how) noexcept;
  /// Ends closing. Forgets the adapter and releases its provider, or keeps both because the provider refused.
  void closed(DAT_IA_HANDLE ia, const adapter& a, bool gone) noexcept;

private:
  [[nodiscard]] std::vector<key> keys() const; // of providers_; the lock is held
  [[nodiscard]] provider_ref find(const DAT_PROVIDER_INFO& info) const noexcept;
  void load(const found& entry);
  void drop(const provider_ref& p) noexcept;

  // Held while a provider is loaded and removed, so that two threads do not load one. Recursive, because a provider
  // may open adapters of others meanwhile.
  std::recursive_mutex loading_;
  library* loading_now_ = nullptr; // the library that is being loaded, which must add its provider
  std::thread::id loader_;

  mutable std::mutex lock_; // of what follows; never held during a call of a provider
  std::vector<provider_ref> providers_;
  std::list<library> libraries_;
  std::map<DAT_IA_HANDLE, adapter> adapters_;
  std::uint64_t ids_ = 0;
};

/// Writes a line to standard error if the environment asks for it: DAT_DBG_LEVEL is set and not 0. The return words of
/// the C interface have no room for the reason why a provider could not be loaded.
void note(const std::string& text) noexcept;

} // namespace dat_registry
