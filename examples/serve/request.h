#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "examples/serve/answers.h"
#include "examples/serve/connections.h"
#include "examples/serve/metrics.h"
#include "examples/serve/open_inference.h"
#include "examples/serve/service.h"

struct MHD_Connection;

namespace athanor::serve {

/// The body of a request while it arrives, within the limit for all bodies.
class Body {
 public:
  explicit Body(Metrics& metrics) : metrics_(metrics) {}
  ~Body();
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  /// False if all bodies would exceed `most_of_all` bytes.
  bool append(const char* bytes, std::size_t count, std::int64_t most_of_all);
  const std::string& text() const { return text_; }
  /// Holds what was made of the text, instead of it. False as append().
  bool replace(std::shared_ptr<const std::string> by, std::int64_t most_of_all);

 private:
  bool count(std::size_t more, std::int64_t most_of_all);

  Metrics& metrics_;
  std::string text_;
  std::shared_ptr<const std::string> replaced_by_;
};

enum class Route { unknown, page, predict, health, metrics, inference, options };

/// A request from its headers to its answer.
struct Request {
  Route route = Route::unknown;
  InferencePath inference = {};  ///< of Route::inference
  std::string method = {}, path = {};
  Clock::time_point begin = Clock::now();
  Connection* connection = nullptr;
  std::uint64_t received = 0;           ///< bytes of the body, kept or not
  std::shared_ptr<Body> body = {};      ///< null if not kept
  std::optional<Reply> reply = {};      ///< set once known
  std::string allow = {};               ///< methods, for code 405 and OPTIONS
  std::string origin = {};              ///< of a page on another site that may read the answer
  bool is_malformed = false;            ///< answered at once; then the connection is closed
  bool is_complete = false;             ///< the whole body has arrived and is routed
  std::atomic<std::size_t> images = 0;  ///< set by another thread
  int sent_code = 0;                    ///< 0: nothing

  /// Suspends the connection while the service has the request. The first of the service and a server that
  /// ends sets the answer and wakes it.
  void wait(MHD_Connection* suspended);
  void wake(const Reply& with);

 private:
  std::mutex mutex_;
  MHD_Connection* suspended_ = nullptr;
};

}  // namespace athanor::serve
