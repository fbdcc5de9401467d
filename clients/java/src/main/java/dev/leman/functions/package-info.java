/**
 * Functions that compute columns of Leman, served by a program in Java: {@link
 * dev.leman.functions.FunctionServer}.
 */
package dev.leman.functions;
