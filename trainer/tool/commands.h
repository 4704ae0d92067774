#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "tensor/base/error.h"

namespace CLI {
class App;
}

// Model commands of the tool `athanor`. Each adds itself to the app, and runs during parsing.

namespace athanor::tool {

/// predict MODEL IMAGE...: predictions of a run's model for pictures.
void add_predict(CLI::App& app);
/// evaluate MODEL --val DATA: its accuracy on labelled images.
void add_evaluate(CLI::App& app);
/// quantize MODEL OUT --calibrate DATA: a model of 8-bit integers.
void add_quantize(CLI::App& app);

/// report RUN...: the page of a run, or a comparison of several.
void add_report(CLI::App& app);

/// Opens a data set by the user's name for it.
using OpenData = std::function<std::unique_ptr<Dataset>(const std::string& data)>;
/// picture DATA INDEX FILE: writes an image of a data set as a PNG.
void add_picture(CLI::App& app, const OpenData& open);

/// The user interrupted it by a signal.
class Interrupted : public Error {
 public:
  Interrupted(int signal, const std::string& what) : Error(what), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Some files could not be read, as already reported; the others were processed.
class SomeUnreadable : public Error {
 public:
  SomeUnreadable() : Error("some files could not be read") {}
};

}  // namespace athanor::tool
