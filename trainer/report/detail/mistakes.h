#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "trainer/inference/evaluation.h"
#include "trainer/report/detail/record.h"

namespace athanor::report {

/// {"images", "of", "top1", "names": [...], "cells": [[actual, predicted, images], ...], "mistakes":
/// [{"sample", "file", "actual", "predicted", "probability", "loss", "picture"}]}, where pictures are data
/// URLs. `of`: the total number of images; other ranks may have evaluated the rest.
Json json_of(const Evaluation& evaluation, const Dataset& data, std::int64_t of);

/// The section of the page: the confusion matrix, or for many classes the most frequent confusions, and the
/// worst mistakes as pictures. Empty if the JSON does not have this form.
std::string mistakes_section(const Json& evaluation);

}  // namespace athanor::report
