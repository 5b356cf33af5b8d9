// SPDX-License-Identifier: Apache-2.0
// plumb.hpp as compiled with -fno-exceptions, in a program whose other files have them.
#ifndef PLUMB_TESTS_CAPI_HPP_WITHOUT_EXCEPTIONS_H_
#define PLUMB_TESTS_CAPI_HPP_WITHOUT_EXCEPTIONS_H_

#include <string>

// "ok", or what went wrong with a few steps and samples.
std::string TrainWithoutExceptions();
// The message of an error that is returned.
std::string FailWithoutExceptions();
// Takes the value of an error.
void AbortWithoutExceptions();

#endif  // PLUMB_TESTS_CAPI_HPP_WITHOUT_EXCEPTIONS_H_
